"""Schedule the links of a wireless network live: a process for each link, messages over UDP, some of them lost.

python examples/scheduling/live.py --links 50 --slots 20 --loss 0.05

Packets arrive at every link. In each slot it knows its own queue, talks for two rounds to the links that it disturbs,
and sends or waits. A line shows who sends (#), who collides (x), who waits with packets (.) and who has none, and the
packets that wait in all. Decisions of slots in which all messages came are compared with those of the same network on
one computer. The exit code is 1 if a link did not come to the end, no decision came, or one differs.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import graphact
from graphact_lab.experiments.scheduling.conflicts import draw_geometric
from graphact_lab.experiments.scheduling.greedy_rules import heard, local_greedy, rule_key
from graphact_lab.experiments.scheduling.keys import KeyFleet, queue_states, train

sys.path.append(str(Path(__file__).parents[1] / "agents"))
from local_agents import LocalAgents, deploy_locally

KEYS = Path(__file__).with_name("keys.safetensors")
SLOTS = "slots.json"
WIDTH, ROUNDS, DIGITS = 16, 2, 6  # digits of keys
PACKETS = 5  # that a slot carries


class LinkProcesses(LocalAgents):
    """A process of link.py for each link."""

    program = (str(Path(__file__).with_name("link.py")),)

    def tell(self, i, line):
        """Hand its queue to a link."""
        self.running[i].stdin.write(json.dumps(line).encode() + b"\n")
        self.running[i].stdin.flush()


def train_keys(path):
    """Train a bank of one layer and save it; it takes packets, where training had multiples of the mean queue."""
    fleet = KeyFleet("bank", layers=1, width=WIDTH, seeds=[0])
    _, _, mean = queue_states(0, 100, "cpu")
    train(fleet, iterations=1, steps=600, rate=1e-2, graphs=8, nodes=100, seed=0, device="cpu", with_queues=True)
    bank = {"name": "AdaptiveFilterBank", "ops": ["max", "min"]}
    model = graphact.nn.GraphNetwork([3, WIDTH], convolution=bank, activation="gelu")
    model.load_state_dict({name: tensor[0] for name, tensor in fleet.parameters.items()})
    (layer,) = model.convolutions
    with torch.no_grad():
        layer.taps[:, 0] /= mean  # of the queue; maximum and minimum of a positive multiple are multiples, too
        layer.function_taps[:, :, 0] /= mean
    graphact.save(model, path)


def central_decisions(model, conflicts, queue):
    """The links that send if every message arrives."""
    with torch.no_grad():
        degree = conflicts.degree.double()
        static = torch.stack([1 / (1 + degree), (1 + degree).log() / 3], -1)
        learned = model(torch.cat([queue.unsqueeze(-1), static], -1), conflicts.graph.to(dtype=torch.float64))
        key = learned.squeeze(-1) + rule_key("w / (1 + d)", queue, degree)
        return local_greedy(key.round(decimals=DIGITS), queue > 0, conflicts, 1).numpy()


def prepare(model, conflicts, options, folder):
    """Write the folder of each link: model, graph, addresses, and what all know."""
    graphact.save(model, folder / "model.safetensors")
    conflicts.graph.to(dtype=torch.float64).save(folder / "graph.npz")
    files = folder / "model.safetensors", folder / "graph.npz"
    folders = deploy_locally(*files, folder / "nodes", transport="udp", tls=False)
    settings = {"round": 0.9 * options.period / ROUNDS, "loss": options.loss, "seed": options.seed}
    for each in folders:
        (each / SLOTS).write_text(json.dumps(settings))
    return folders


def picture(sends, collides, queue):
    """A character for each link."""
    kinds = zip(sends, collides, queue > 0, strict=True)
    return "".join("x" if hit else "#" if sent else "." if waits else " " for sent, hit, waits in kinds)


def run(model, conflicts, options, folder, show):
    """Serve the queues for some slots; ``show`` is called with slot, picture, backlog and decisions that came in time.

    Returns:
        Counts of decisions, of those in slots in which all messages came, of those of them that are the central ones,
        of links that collided, of messages that did not come in time, of datagrams lost, and of links that came to the
        end.
    """
    generator = np.random.default_rng(options.seed)
    rate = PACKETS * options.load / (1 + conflicts.degree.numpy())
    queue = np.zeros(options.links)
    counts = dict.fromkeys(("decisions", "compared", "central", "collided", "missed"), 0)
    central_decisions(model, conflicts, torch.from_numpy(queue))  # compiles what the first call needs
    with LinkProcesses(prepare(model, conflicts, options, folder), [], errors=folder / "errors.txt") as links:
        links.wait_until_ready(180.0)
        origin = time.monotonic() + 0.5
        for slot in range(options.slots):
            queue += generator.poisson(rate)
            start = origin + slot * options.period
            for i in range(options.links):
                links.tell(i, {"run": slot, "start": start, "queue": float(queue[i])})
            sends, decided, missed = np.zeros(options.links, bool), 0, 0
            while (left := start + options.period - time.monotonic()) > 0:
                for event in links.read(left):
                    if event["event"] == "decision" and event["run"] == slot and "sends" in event:
                        sends[event["node"]], decided = event["sends"], decided + 1
                        missed += event["missed"]
            collides = sends & heard(torch.from_numpy(sends), conflicts.graph).numpy()
            central = central_decisions(model, conflicts, torch.from_numpy(queue))
            counts["decisions"] += decided
            if decided == options.links and not missed:
                counts["compared"] += decided
                counts["central"] += int((sends == central).sum())
            counts["missed"] += missed
            counts["collided"] += int(collides.sum())
            drawn = picture(sends, collides, queue)
            queue = np.where(sends & ~collides, np.maximum(queue - PACKETS, 0), queue)
            show(slot, drawn, int(queue.sum()), decided)
        for process in links.running.values():
            process.stdin.close()
        ends = [event for event in links.read_until(time.time() + 20) if event["event"] == "end"]
    return {**counts, "lost": sum(event["lost"] for event in ends), "ended": len(ends)}


def parse(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, default=50, help="processes (default: 50)")
    parser.add_argument("--slots", type=int, default=20)
    parser.add_argument("--period", type=float, default=1.5, help="seconds of a slot, for show (default: 1.5)")
    parser.add_argument("--loss", type=float, default=0.05, help="probability that a datagram is lost (default: 0.05)")
    parser.add_argument("--load", type=float, default=1.0, help="of what each link gets in turn (default: 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", action="store_true", help="train the keys again first, in a minute")
    options = parser.parse_args(arguments)
    if options.links < 4 or options.slots < 1 or not 0 <= options.loss < 1 or options.period <= 0:
        parser.error("--links must be at least 4, --slots at least 1, --loss in [0, 1) and --period above 0")
    return options


def main(arguments=None):
    """Run, print a line a slot, and return the exit code."""
    options = parse(arguments)
    if options.train:
        train_keys(KEYS)
    model = graphact.load(KEYS).double()
    conflicts = draw_geometric(1, options.links, torch.Generator().manual_seed(options.seed))

    def show(slot, drawn, backlog, decided):
        print(f"{slot:4d} |{drawn}| {backlog:5d} packets wait, {decided} of {options.links} decided", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        found = run(model, conflicts, options, Path(folder), show)
    print(", ".join(f"{name} {count}" for name, count in found.items()))
    if found["ended"] < options.links or not found["decisions"] or found["central"] < found["compared"]:
        sys.stderr.write("links did not come to the end, or decided otherwise than one computer\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
