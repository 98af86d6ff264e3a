"""Fly a team in closed loop, one process each, through lost messages, a crash and a partition.

python examples/flocking/flock.py --agents 20 --seconds 60

A world process integrates the motion and tells each agent its own state and who is in range. It relays nothing and
computes no control: an agent that does not answer in time coasts for that step. Afterwards every control is computed
again from the logs. The exit code is 1 if an agent did not come to the end, or a control is not the one of the logs.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from pilot import FLIGHT, control_of  # beside this file

import graphact
from graphact_agents import ShiftRow, infer
from graphact_agents.deployment import Deployment
from graphact_agents.log import LOG_NAME, RoundClosed, read_log
from graphact_lab.experiments.flocking import world as physics

sys.path.append(str(Path(__file__).parents[1] / "agents"))
from local_agents import LocalAgents, deploy_locally

POLICY = Path(__file__).with_name("policy.safetensors")
RECORD = "flight.npz"
PARTITION = (0.7, 0.75)  # of the flight: even agents receive nothing from odd ones


class Pilots(LocalAgents):
    """A process of pilot.py for each agent."""

    program = (str(Path(__file__).with_name("pilot.py")),)

    def start(self, i):
        """Start an agent, and never wait for it to read."""
        super().start(i)
        os.set_blocking(self.running[i].stdin.fileno(), False)

    def tell(self, i, line):
        """Hand a state to an agent; one that is gone, or whose pipe is full as it stands still, misses it.

        A pipe takes a line of less than 4,096 bytes as a whole or not at all.
        """
        stream = self.running[i].stdin
        if not stream.closed:
            with suppress(OSError):
                os.write(stream.fileno(), json.dumps(line).encode() + b"\n")

    def kill(self, i):
        """End an agent without warning (kill -9)."""
        super().kill(i)
        self.end(i)

    def end(self, *agents):
        """Tell agents that there are no more states."""
        for i in agents:
            with suppress(OSError):
                self.running[i].stdin.close()


def prepare(model, options, world, folder):
    """Write the folder of each agent: model, graph, addresses, and what all know of the flight."""
    graphact.save(model.double(), folder / "model.safetensors")
    complete = torch.ones(options.agents, options.agents) - torch.eye(options.agents)
    graphact.Graph.from_dense(complete).save(folder / "graph.npz")
    files = folder / "model.safetensors", folder / "graph.npz"
    folders = deploy_locally(*files, folder / "nodes", transport=options.transport, tls=False)
    rounds, period = 1 + sum(layer.exchanges for layer in model.layers()), 1 / options.rate
    flight = {name: getattr(world, name) for name in ("acceleration", "squash", "input_limit")}
    flight |= {"slot": 0.9 * period / rounds, "period": period, "loss": options.loss, "seed": options.seed}
    for each in folders:
        (each / FLIGHT).write_text(json.dumps(flight))
    return folders


def fly(model, options, world, folder, watch):
    """Fly a team of processes; ``watch`` is called with step, variance, links and the number of controls in time.

    Returns:
        Counts of links used and missed and of datagrams lost; ``gone``, the agents that did not come to the end, as
        they died or stand still; ``idle``, those of the others of which no control ever came in time.
    """
    folders, period, agents = prepare(model, options, world, folder), 1 / options.rate, range(options.agents)
    steps, killed = round(options.seconds * options.rate), options.kill if options.kill >= 0 else None
    teams = physics.draw_teams(1, options.agents, torch.Generator().manual_seed(options.seed), world)
    states, controls = (np.full((steps, options.agents, size), np.nan) for size in (4, 2))
    in_range = np.zeros((steps, options.agents, options.agents), bool)
    counts = {"missed": 0, "used": 0, "failed": 0}
    with Pilots(folders, ["--transport", options.transport], errors=folder / "errors.txt") as pilots:
        pilots.wait_until_ready(120.0)
        origin = time.monotonic() + 0.2
        for step in range(steps):
            start = origin + step * period
            time.sleep(max(0.0, start - time.monotonic()))
            if killed is not None and step == steps // 3:
                pilots.kill(killed)
            if killed is not None and step == steps // 2:
                pilots.start(killed)
            adjacency = physics.adjacency_of(physics.pairs_of(teams.position[0]), world.radius).numpy()
            states[step], in_range[step] = torch.cat(teams, -1)[0].numpy(), adjacency
            line = {"run": step, "start": start, "apart": PARTITION[0] <= step / steps < PARTITION[1]}
            for agent in agents:
                neighbors = np.flatnonzero(adjacency[agent]).tolist()
                pilots.tell(agent, line | {"state": states[step, agent].tolist(), "neighbors": neighbors})
            while (left := start + period - time.monotonic()) > 0:
                for event in pilots.read(left):
                    if event["event"] == "control":
                        for name in counts:
                            counts[name] += event[name]
                        if event["run"] == step and not event["failed"]:  # those of earlier steps come too late
                            controls[step, event["node"]] = event["control"]
            flown = torch.from_numpy(np.nan_to_num(controls[step])).unsqueeze(0)
            teams = physics.move(teams, flown, world)
            in_time = int(np.isfinite(controls[step]).all(-1).sum())
            watch(step, float(physics.disagreement(teams.velocity)), int(adjacency.sum()) // 2, in_time)
        pilots.end(*pilots.running)
        ends = [event for event in pilots.read_until(time.time() + 10) if event["event"] == "end"]
    np.savez_compressed(folder / RECORD, states=states, controls=controls, in_range=in_range)
    gone = sorted({*agents} - {event["node"] for event in ends})
    never = np.flatnonzero(~np.isfinite(controls).all(-1).any(0)).tolist()
    lost = sum(event["lost"] for event in ends)
    return {**counts, "lost": lost, "gone": gone, "idle": [agent for agent in never if agent not in gone]}


def check_flight(folder, world):
    """Compute every control again, in one place, from the states and the logs of who used whom.

    Returns:
        How many were computed again, and the largest difference from what an agent flew.
    """
    folders = sorted((folder / "nodes").glob("node-*"), key=lambda path: int(path.name.partition("-")[2]))
    model, flight = Deployment.load(folders[0]).model, json.loads((folders[0] / FLIGHT).read_text())
    with np.load(folder / RECORD) as record:
        states, controls, in_range = (record[name] for name in ("states", "controls", "in_range"))
    used = np.zeros((len(states), 1 + model.rounds, len(folders), len(folders)), bool)
    for agent, path in enumerate(folders):
        for entry in read_log(path / LOG_NAME):
            if isinstance(entry, RoundClosed):
                used[entry.run, entry.round, agent, list(entry.used)] = True
    count, differences = 0, [0.0]
    for step, (state, flown, adjacency) in enumerate(zip(states, controls, in_range, strict=True)):
        is_there = np.isfinite(flown).all(-1)
        position, velocity = torch.from_numpy(state).split(2, -1)
        known = physics.measure(
            physics.pairs_of(position), velocity, torch.from_numpy(used[step, 0]), world.input_limit
        )
        matrix = np.where(adjacency, 1 / np.maximum(adjacency.sum(-1, keepdims=True), 1), 0.0)
        again = control_of(compute_together(model, matrix, known.numpy(), used[step, 1:]), flight)
        count += int(is_there.sum())
        differences.append(np.abs(again - flown)[is_there].max(initial=0.0))
    return count, float(np.max(differences))  # NaN if any is


def compute_together(model, matrix, x, used):
    """Return the outputs of all agents, whose programs run side by side on the values that each of them used."""
    hears = [tuple(j for j in range(len(x)) if j != i) for i in range(len(x))]
    rows = [ShiftRow(each, matrix[i, list(each)], matrix[i, i]) for i, each in enumerate(hears)]
    programs = [infer(model, row, signal) for row, signal in zip(rows, x, strict=True)]
    exchanges, outputs = [next(program) for program in programs], []
    for answered in used:
        values, exchanges = [exchange.value for exchange in exchanges], []
        for program, members in zip(programs, answered, strict=True):
            try:
                exchanges.append(program.send({j: values[j] for j in np.flatnonzero(members)}))
            except StopIteration as end:
                outputs.append(end.value)
    return np.stack(outputs)


def find_failures(facts, largest):
    """Return a line for each thing that went wrong; an agent that was killed on purpose is none."""
    lines = []
    for name, text in (
        ("gone", "did not come to the end of the flight: they died or stand still"),
        ("idle", "never had a control in time; try a lower --rate"),
    ):
        if facts[name]:
            lines.append(f"agents {', '.join(map(str, facts[name]))} {text}")
    if not largest <= 1e-9:  # nor not a number
        lines.append(f"a control is not the one that the logs give: it differs by {largest:.2g}")
    return lines


def parse(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=20, help="processes (default: 20)")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the flight by the clock (default: 60)")
    parser.add_argument("--rate", type=float, default=20.0, help="controls a second (default: 20)")
    parser.add_argument("--loss", type=float, default=0.1, help="probability that a datagram is lost (default: 0.1)")
    parser.add_argument("--kill", type=int, default=3, help="agent that is killed at a third of the flight; -1: none")
    parser.add_argument("--transport", choices=("udp", "zenoh"), default="udp")
    parser.add_argument("--model", type=Path, default=POLICY, help="a policy that graphact.save has written")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if not -1 <= options.kill < options.agents:
        parser.error(f"--kill must be an agent, less than {options.agents}, or -1, got {options.kill}")
    return options


def main(arguments=None):
    """Fly, print a line a second, check, and return the exit code."""
    options, world = parse(arguments), physics.World()
    every = max(1, round(options.rate))

    def show(step, variance, links, controls):
        if (step + 1) % every == 0:
            seconds = f"{(step + 1) / options.rate:6.1f} s"
            print(f"{seconds}  controls {controls:3d} of {options.agents}  links {links:4d}  variance {variance:7.3f}")

    with tempfile.TemporaryDirectory() as name:
        facts = fly(graphact.load(options.model), options, world, Path(name), show)
        count, largest = check_flight(Path(name), world)
    missed = facts["missed"] / max(facts["used"] + facts["missed"], 1)
    share = count / (options.agents * round(options.seconds * options.rate))
    print(f"{share:.1%} of the controls came in time, {missed:.2%} of the links were missed in a round")
    print(f"{count} controls computed again from the logs: largest difference {largest:.2g}")
    failures = find_failures(facts, largest)
    for line in failures:
        print(line, file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
