"""Hostile datagrams and files against running agents: none crashes, stalls, grows, or uses anything false.

PYTHONPATH=tests python -m agents.redteam --datagrams 1000000 --files 10000

Three agents of a network run, over UDP, in pieces that fit, and encrypted. The fourth node is in the hands of an
attacker, with its address and its keys: it sends noise, altered and old messages, and authenticated ones that cannot be
true; in sessions, sealed and in pieces as agents do, and frames of those that cannot be true. Strangers send to all
ports, at last as fast as the system lets them, and ask the status nonsense. Damaged changes of the network are put into
the folders of running agents, and damaged files before all readers.
"""

import argparse
import itertools
import json
import math
import random
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from agents import flood
from agents.hostile import Attacker
from agents.live import Captured, Daemon, make_network

from graphact import nn
from graphact.agents import Deployment, FileLog, load_model, read_log
from graphact.agents.addresses import Address, Addresses
from graphact.agents.changes import CHANGE, NEXT, current_epoch
from graphact.agents.learning.state import State
from graphact.agents.messages import MAX_RUN, Kind
from graphact.agents.network import NetworkFile
from graphact.agents.orders import OrderKey
from graphact.agents.renewal import renew
from graphact.agents.replay import answered_links, dense_matrix, replay
from graphact.agents.rollout import Network
from graphact.agents.status import REASONS
from graphact.agents.status_server import fetch_status
from graphact.agents.transports.sealed import CUT, NONCE, PART, PIECE, SEALED, SESSION, VERSION, tag_of

EDGES = [(i, j) for i in range(4) for j in range(i)]
CAPTURED = 3
SLOT, PERIOD = 0.1, 0.4
MOST_GROWTH = 24.0  # MiB
SLACK = 3.0
"""Seconds by which a busy machine may be late."""


def peak_memory(pid):
    """MiB."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


class Arena:
    """Three running agents, and the attacker in the place of the fourth."""

    def __init__(self, folder, *options):
        self.folders = make_network(folder, EDGES, 4, nn.FIR([1, 1], order=2).double())
        shared = ["--transport", "udp", "--period", str(PERIOD), "--slot", str(SLOT), "--status", "0", *options]
        self.daemons = [Daemon(each, *shared) for each in self.folders[:CAPTURED]]
        self.captured = Captured(self.folders[CAPTURED], slot=SLOT, period=PERIOD, encrypt="--encrypt" in options)
        self.captured.socket.setblocking(False)
        self.ports = [Addresses.load(f, tuple({0, 1, 2, 3} - {i})).listen.port for i, f in enumerate(self.folders)]
        self.status = [Address.parse(daemon.next_event("ready")["status"]) for daemon in self.daemons]
        for daemon in self.daemons:
            daemon.results(3)
        self.before = [peak_memory(daemon.process.pid) for daemon in self.daemons]

    def close(self):
        self.captured.socket.close()
        for daemon in self.daemons:
            daemon.__exit__()

    def drain(self):
        """Take what the agents have printed, without waiting."""
        for daemon in self.daemons:
            while daemon._selector.select(0):
                daemon.take_in()

    def judge(self):
        """Everything that agents promise, of all that they printed; how many answers, and the largest growth."""
        self.drain()
        nodes = [Deployment.load(folder) for folder in self.folders]
        model, matrix, x = nodes[0].model, dense_matrix(nodes), np.array([[1.0 + i] for i in range(4)])
        logs = [list(read_log(folder / "log.jsonl")) for folder in self.folders[:CAPTURED]] + [[]]
        runs = [{} for _ in logs]
        for log, index in zip(logs, runs, strict=True):
            for record in log:
                index.setdefault(record.run, []).append(record)
        answers, replays, latest = 0, {}, 0.0
        for daemon in self.daemons:
            assert daemon.process.poll() is None, "an agent ended"
            times = [event["time"] for event in daemon.events if event["event"] == "result"]
            gap = max(after - before for before, after in itertools.pairwise([*times, time.time()]))
            assert gap <= PERIOD + SLACK, f"no run for {gap} s"
            for event in daemon.events:
                assert event["event"] != "failed", event
                if event["event"] != "result":
                    continue
                run, answers = event["run"], answers + 1
                assert not event["complete"]
                assert all(CAPTURED in missed for missed in event["missed"]), "a value of the captured node was used"
                latest = max(latest, event["seconds"])
                if run not in replays:
                    used, closed = answered_links([index.get(run, []) for index in runs], run, model.rounds)
                    replays[run] = replay(model, matrix, x, used, closed)
                off = abs(event["output"][0] - replays[run][event["node"], 0])
                assert off <= 1e-12, f"run {run} at node {event['node']} is off the replay by {off}"
        assert latest <= 2 * SLOT + SLACK, f"a run took {latest} s"
        growth = max(peak_memory(d.process.pid) - b for d, b in zip(self.daemons, self.before, strict=True))
        assert growth < MOST_GROWTH, f"an agent grew by {growth} MiB"
        for address in self.status:
            assert fetch_status(address)["alive"]
        return answers, growth


def send_datagrams(arena, count, rng, rate=math.inf):
    """What strangers and the captured node send; how many of them agents counted as refused, by reason."""
    attacker, captured = Attacker(rng.randrange(2**32)), arena.captured
    strangers = socket.socket(type=socket.SOCK_DGRAM)
    begun, sent = time.monotonic(), 0
    while sent < count:
        while (genuine := captured.listen()) is not None:  # opened, where it was sealed
            attacker.seen.append(genuine)
            attacker.old.append(genuine)
        for _ in range(64):
            to, way, sent = rng.randrange(CAPTURED), rng.random(), sent + 1
            try:
                if way < 0.2:
                    strangers.sendto(attacker.datagram(), ("127.0.0.1", arena.ports[to]))
                elif way < 0.4:
                    (captured.sealed or captured).send(to, attacker.datagram())
                elif way < 0.7:
                    captured.send(to, hostile_frame(captured, to, rng))
                else:
                    say_poison(captured, to, rng)
            except BlockingIOError:
                time.sleep(1e-3)
        time.sleep(max(0.0, sent / rate - (time.monotonic() - begun)))
        if sent % 6400 == 0:
            arena.drain()
            ask_nonsense(arena.status[rng.randrange(CAPTURED)], rng)
    strangers.close()
    arena.drain()
    totals = [fetch_status(address)["totals"] for address in arena.status]
    return {name: sum(each[name] for each in totals) for name in REASONS}


def hostile_frame(captured, to, rng):
    """One that was seen, altered; or one with the true keys, which no agent would make."""
    way, key, me = rng.randrange(4), captured.links.keys[to], captured.links.node
    peer = captured.sealed._peers[captured.links.epoch, to]
    part = PART.pack(rng.randrange(4), rng.choice([0, 1, 2, 254, 255]), rng.choice([0, 1, 2, 3, 255]))
    part += rng.randbytes(rng.choice([0, 1, 40, 1000]))
    if way == 0 and captured.wire.frames:
        frame = bytearray(rng.choice(captured.wire.frames))
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        return bytes(frame)
    if way == 1:  # for a session: of another life of this node, sometimes with the answer to the neighbour's challenge
        asked = [frame for frame in captured.wire.frames if frame[:2] == b"GK"]
        echo = SESSION.unpack_from(rng.choice(asked))[7] if asked and rng.random() < 0.05 else rng.randbytes(16)
        tags = (rng.choice([VERSION] * 3 + [1]), rng.randrange(256), me, to, captured.links.epoch)
        body = SESSION.pack(b"GK", *tags, rng.randbytes(16), rng.randbytes(16), echo)
    elif way == 2 and peer.seal is not None:  # sealed as it should be
        is_cut = rng.randrange(2)
        head = SEALED.pack(b"GS", VERSION, is_cut, me, peer.session, rng.randrange(2**63))
        return head + peer.seal(head[NONCE], part[: rng.choice([5, 10**6])], CUT if is_cut else None)
    else:
        body = PIECE.pack(b"GP", 1, 0, me, captured.links.epoch) + part
    return body + tag_of(body, key)


def flood_agents(arena, seconds):
    """Millions of datagrams of a stranger for each agent, in turn; how many."""
    sent = 0
    for port in arena.ports[:CAPTURED]:
        with flood.start(port, seconds) as process:
            while process.poll() is None:
                arena.drain()
                time.sleep(0.05)
            sent += int(process.stdout.read())
    return sent


def say_poison(captured, to, rng):
    """With the true key: what cannot be true, of runs, rounds and values, and more requests than are answered."""
    kind, round_ = rng.choice(list(Kind)), rng.randrange(2**32)
    now = int(time.time() / PERIOD)
    run = rng.choice([now + 2**40, MAX_RUN, now + 10**6, now - 5, 0])
    value = rng.choice([(float("nan"),), (float("inf"),), tuple(range(5)), (1e308, -1e308)])
    if kind == Kind.DATA and rng.random() < 0.3:
        run, value = now + rng.randrange(2), rng.choice([(float("nan"),), (1.0, 2.0), (float("-inf"),)])
        round_ = rng.randrange(3)  # of a run in progress, and what is no value for it
    captured.say(to, run, round_, value, kind)


def ask_nonsense(address, rng):
    """A request to the status that is none."""
    try:
        with socket.create_connection((address.host, address.port), 2.0) as connection:
            connection.sendall(rng.choice([b"GET", b"\0" * 9000, b"POST /status HTTP/1.1\r\n\r\n", rng.randbytes(64)]))
    except OSError:
        pass  # cut off already


# Files


def damage(content, rng):
    """A file that is cut, altered, repeated, empty, or something else."""
    way = rng.randrange(7)
    if way == 0 or not content:
        return rng.choice([b"", b"{}", b"[]", b"null", b"NaN", b"[" * 5000, rng.randbytes(100)])
    if way == 1:
        return content[: rng.randrange(len(content))]
    if way == 2:
        at = rng.randrange(len(content))
        return content[:at] + rng.randbytes(rng.choice([1, 4, 50])) + content[at:]
    if way == 3:
        return content + content
    if way == 4:  # other numbers, where it is text
        words = rng.choice([b"-1", b"1e999", b"99999999999999999999", b'"x"', b"null", b"true", b"[[]]"])
        digits = [i for i, byte in enumerate(content) if 48 <= byte < 58] or [0]
        at = rng.choice(digits)
        return content[:at] + words + content[at + 1 :]
    altered = bytearray(content)
    for _ in range(rng.choice([1, 1, 3, 20])):
        altered[rng.randrange(len(altered))] ^= 1 << rng.randrange(8)
    return bytes(altered)


def stage_damaged_changes(arena, count, rng):
    """Damaged changes in the folders of running agents; how many were refused, and how many were whole after all."""
    network = Network(arena.folders[0].parent)
    sources = arena.folders[0].parent.parent / "changes"
    for i, deployment in renew(network.deployments).items():
        deployment.save(sources / str(i))
        network.addresses[i].save(sources / str(i))
        (sources / str(i) / CHANGE).write_text(json.dumps({"key": OrderKey().public.hex()}))
    refused = whole = done = 0
    while done < count:
        waiting = {}
        for i in range(min(CAPTURED, count - done)):
            staged = arena.folders[i] / f"{NEXT}.new"
            shutil.copytree(sources / str(i), staged)
            file = rng.choice(sorted(staged.iterdir()))
            file.write_bytes(damage(file.read_bytes(), rng))
            if rng.random() < 0.1:
                (staged / "commit.json").write_bytes(rng.choice([b"", b"{}", b'{"run": -1}', b'{"run": "7"}', b"[7]"]))
            staged.rename(arena.folders[i] / NEXT)
            waiting[i] = arena.folders[i] / NEXT / "prepared.json"
        until = time.monotonic() + 60
        while waiting:
            for i, file in list(waiting.items()):
                if file.exists():
                    is_refused = "error" in json.loads(file.read_text())
                    refused, whole, done = refused + is_refused, whole + (not is_refused), done + 1
                    shutil.rmtree(arena.folders[i] / NEXT)
                    del waiting[i]
            assert time.monotonic() < until, f"the agents {sorted(waiting)} do not look at changes any more"
            time.sleep(0.01)
        arena.drain()
    return refused, whole


def read_damaged_files(folder, count, rng):
    """Damaged files before all readers: an error in one line, or a file that is whole; how many were refused."""
    work = folder / "damaged"
    shutil.copytree(folder / "nodes" / "node-0", work)
    (work / "network.toml").write_text('[network]\nslot = 0.1\n[nodes.0]\naddress = "10.0.0.1:7500"\n')
    State.first(np.zeros(3), 2).save(work / "state.npz")
    neighbors = Deployment.load(work).links.neighbors
    readers = {
        "node.json": lambda path: Deployment.load(path.parent),
        "keys.json": lambda path: Deployment.load(path.parent),
        "addresses.json": lambda path: Addresses.load(path.parent, neighbors),
        "model.safetensors": load_model,
        "log.jsonl": lambda path: FileLog(path).close(),
        "network.toml": NetworkFile.load,
        "state.npz": State.load,
        "next/commit.json": lambda path: current_epoch(path.parent.parent, 5),
    }
    (work / NEXT).mkdir()
    (work / NEXT / "commit.json").write_text('{"run": 99999999}')
    contents = {name: (work / name).read_bytes() for name in readers}
    contents["log.jsonl"] = contents["log.jsonl"][:2000]
    refused = 0
    for _ in range(count):
        name = rng.choice(sorted(readers))
        path = work / name
        path.write_bytes(damage(contents[name], rng))
        try:
            readers[name](path)
        except (ValueError, OSError):
            refused += 1
        (work / "log.jsonl.1").unlink(missing_ok=True)
        path.write_bytes(contents[name])
    return refused


def attack(datagrams, files, seed=0, rate=math.inf, live_share=0.2, seconds=4.0):
    """All of it, in two networks; lines that tell how it went."""
    rng, lines = random.Random(seed), []
    for options in (["--mtu", "1280"], ["--encrypt", "--mtu", "1280"]):
        with tempfile.TemporaryDirectory() as name:
            arena = Arena(Path(name), *options)
            try:
                reasons = send_datagrams(arena, datagrams // 2, rng, rate)
                flooded = flood_agents(arena, seconds)
                live = max(3, int(files * live_share / 2))
                staged = stage_damaged_changes(arena, live, rng)
                read = read_damaged_files(Path(name), files // 2 - live, rng)
                answers, growth = arena.judge()
            finally:
                arena.close()
        refused = sum(reasons.values())
        counted = ", ".join(f"{count} {name}" for name, count in reasons.items() if count)
        lines.append(
            f"UDP {' '.join(options)}: {datagrams // 2} hostile datagrams ({refused} counted as refused: {counted}), "
            f"{flooded} of a stranger, {live} damaged changes of running agents ({staged[0]} refused, {staged[1]} "
            f"harmless), {files // 2 - live} damaged files ({read} refused); {answers} answers, none wrong or late, "
            f"memory grew by {growth:.1f} MiB at most"
        )
        print(lines[-1], flush=True)  # noqa: T201
        assert refused > 0.1 * datagrams / 2  # others are lost on the way
        deep = ("ahead", "not_finite", "misfit", "stale", "unanswered")  # of those who speak with true keys alone
        assert all(reasons[name] > 0 for name in deep), reasons
        assert flooded > datagrams
        assert staged[0] > 0
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datagrams", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=math.inf, help="datagrams a second (default: as many as it can)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    attack(options.datagrams, options.files, options.seed, options.rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
