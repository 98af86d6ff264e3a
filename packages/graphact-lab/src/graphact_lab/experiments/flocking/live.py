"""A team of real processes in closed loop, and the check of what they did.

The world integrates the motion and tells each agent its own state and who is in range. It relays nothing and computes
no control: an agent that does not answer in time coasts for that step, one that stands still for as long as it does.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphact.files import save
from graphact.graph import Graph
from graphact.nn import GraphModule
from graphact.storage import write_atomically
from graphact_agents.addresses import free_addresses
from graphact_agents.deployment import Deployment, split
from graphact_agents.local_agents import LocalAgents
from graphact_agents.log import LOG_NAME, read_log
from graphact_agents.messages import Array
from graphact_agents.replay import answered_links, replay
from graphact_lab.experiments.flocking.pilot import FLIGHT, control_of
from graphact_lab.experiments.flocking.world import (
    Teams,
    World,
    disagreement,
    draw_teams,
    hears,
    measure,
    move,
    pairs_of,
)

RECORD = "flight.npz"
Step = Callable[[int, float, int, int], None]  # called with step, variance, links, controls that came


class Pilots(LocalAgents):
    """One process for each agent; see :mod:`graphact_lab.experiments.flocking.pilot`."""

    program = ("graphact_lab.experiments.flocking.pilot",)

    def __init__(self, folders: Sequence[Path], options: Sequence[str], errors: Path) -> None:
        super().__init__(folders, options, errors=errors)
        self._rest: dict[int, bytes] = {}

    def start(self, i: int) -> None:
        super().start(i)
        stream = self.running[i].stdin
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        self._rest[i] = b""

    def tell(self, agent: int, line: dict[str, Any]) -> None:
        """Hand a state to an agent, without ever waiting for it.

        One that is gone receives nothing; one that stands still receives nothing more once its pipe is full, or it
        would hold up the world and with it everybody else.
        """
        stream = self.running[agent].stdin
        if stream is None or stream.closed:
            return
        with suppress(OSError):
            if rest := self._rest[agent]:  # of a line that did not fit
                self._rest[agent] = rest[os.write(stream.fileno(), rest) :]
            if not self._rest[agent]:
                content = json.dumps(line).encode() + b"\n"
                self._rest[agent] = content[os.write(stream.fileno(), content) :]

    def kill(self, i: int) -> None:
        super().kill(i)
        self.end(i)

    def end(self, *agents: int) -> None:
        """Tell agents that there are no more states; what one that is gone has not read is given up."""
        for agent in agents:
            stream = self.running[agent].stdin
            assert stream is not None
            with suppress(OSError):
                stream.close()


@dataclass(frozen=True)
class FlightPlan:
    """Settings of a flight of processes; times in seconds.

    Attributes:
        agents: processes.
        steps: controls.
        rate: of them in a second by the clock; a step is the world's interval in flight, whatever the rate.
        loss: probability that a datagram is lost.
        killed: an agent that is killed (kill -9) at a third of the flight and started again at half of it; or None.
        partition: from when to when even agents receive nothing from odd ones, as shares of the flight.
    """

    agents: int = 20
    steps: int = 1200
    rate: float = 20.0
    loss: float = 0.1
    killed: int | None = 3
    partition: tuple[float, float] = (0.7, 0.75)
    transport: str = "udp"
    seed: int = 0
    world: World = field(default_factory=lambda: World(connected=True))


def fly_live(model: GraphModule, plan: FlightPlan, folder: Path, watch: Step | None = None) -> dict[str, Any]:
    """Fly a team of processes; folders of the agents and the record of the flight go to ``folder``.

    Returns:
        What happened: controls that came, links that were missed, variance of the velocities at the end, and so on;
        ``gone`` are the agents that did not come to the end, as they died or stand still, ``idle`` those of the others
        of which no control ever came in time.
    """
    world, period = plan.world, 1 / plan.rate
    complete = Graph.from_dense(torch.ones(plan.agents, plan.agents) - torch.eye(plan.agents))
    save(model.double(), folder / "model.safetensors")
    complete.save(folder / "graph.npz")
    places = free_addresses(plan.agents)
    folders = split(folder / "model.safetensors", folder / "graph.npz", folder, addresses=places, tls=False)
    rounds = 1 + sum(layer.exchanges for layer in model.layers())
    flight: dict[str, Any] = {name: getattr(world, name) for name in ("acceleration", "squash", "input_limit")}
    flight |= {"slot": 0.9 * period / rounds, "period": period, "loss": plan.loss, "seed": plan.seed}
    for each in folders:
        write_atomically(each / FLIGHT, json.dumps(flight).encode())
    teams = draw_teams(1, plan.agents, torch.Generator().manual_seed(plan.seed), world)
    states, controls = np.full((plan.steps, plan.agents, 4), np.nan), np.full((plan.steps, plan.agents, 2), np.nan)
    in_range = np.zeros((plan.steps, plan.agents, plan.agents), bool)
    counts = {"missed": 0, "used": 0, "late": 0, "failed": 0}
    options = ["--transport", plan.transport]
    pilots = Pilots(folders, options, errors=folder / "errors.txt")
    with pilots:
        pilots.wait_until_ready(120.0)
        origin = time.monotonic() + 0.2
        time.sleep(0.2)

        def take(step: int, until: float) -> None:
            """Take the controls of a step that come until a time; those of earlier steps come too late."""
            while True:
                for event in pilots.read(max(0.0, until - time.monotonic())):
                    if event["event"] == "control":
                        counts["missed"] += event["missed"]
                        counts["used"] += event["used"]
                        counts["failed"] += "failure" in event
                        counts["late"] += event["run"] != step
                        if event["run"] == step and "control" in event:
                            controls[step, event["node"]] = event["control"]
                if time.monotonic() >= until:
                    return

        for step in range(plan.steps):
            if plan.killed is not None and step == plan.steps // 3:
                pilots.kill(plan.killed)
            if plan.killed is not None and step == plan.steps // 2:
                pilots.start(plan.killed)
            heard = hears(pairs_of(teams.position[0]), world.radius).numpy()
            states[step] = torch.cat(teams, -1)[0].numpy()
            in_range[step] = heard
            start = origin + step * period
            apart = plan.partition[0] <= step / plan.steps < plan.partition[1]
            for agent in range(plan.agents):
                line = {"run": step, "start": start, "state": states[step, agent].tolist(), "apart": apart}
                pilots.tell(agent, line | {"neighbors": np.flatnonzero(heard[agent]).tolist()})
            take(step, start + period)
            flown = torch.from_numpy(np.nan_to_num(controls[step])).unsqueeze(0)
            teams = move(teams, flown, world)
            if watch is not None:
                came = int(np.isfinite(controls[step]).all(-1).sum())
                watch(step, float(disagreement(teams.velocity)), int(heard.sum()) // 2, came)
        pilots.end(*pilots.running)
        ends = [event for event in pilots.read_until(time.time() + 10) if event["event"] == "end"]
    np.savez_compressed(folder / RECORD, states=states, controls=controls, in_range=in_range)
    there = np.isfinite(controls).all(-1)
    gone = {*range(plan.agents)} - {event["node"] for event in ends}
    idle = {*np.flatnonzero(~there.any(0)).tolist()} - gone
    sent, lost = (sum(event[name] for event in ends) for name in ("sent", "lost"))
    facts: dict[str, Any] = {"controls": float(there.mean()), "seconds": plan.steps * period}
    facts |= {"variance": float(disagreement(teams.velocity)), "gone": sorted(gone), "idle": sorted(idle)}
    return {**counts, **facts, "sent": sent, "lost": lost, "rounds": rounds}


@dataclass(frozen=True)
class Check:
    """Result of replaying the logs of a flight.

    Attributes:
        controls: how many were computed again.
        largest: the largest difference between one and what its agent flew.
        apart: how far, at each step, the flight computed in one place from the same links is from that of the
            processes: the largest distance of an agent.
    """

    controls: int
    largest: float
    apart: Array


def check_flight(folder: Path, world: World) -> Check:
    """Compute every control again, in one place, from the states and the logs of who used whom."""
    folders = sorted(folder.glob("node-*"), key=lambda path: int(path.name.partition("-")[2]))
    logs = [list(read_log(path / LOG_NAME)) for path in folders]
    model, flight = Deployment.load(folders[0]).model, json.loads((folders[0] / FLIGHT).read_text())
    with np.load(folder / RECORD) as record:
        states, controls, in_range = (record[name] for name in ("states", "controls", "in_range"))
    by_run: list[list[list[Any]]] = [[[] for _ in folders] for _ in states]
    for agent, log in enumerate(logs):
        for entry in log:
            by_run[entry.run][agent].append(entry)
    largest, checked, apart = 0.0, 0, []
    alone = Teams(*(torch.from_numpy(states[:1, :, part]) for part in (slice(0, 2), slice(2, 4))))
    for step, (state, flown, heard) in enumerate(zip(states, controls, in_range, strict=True)):
        used, closed = answered_links(by_run[step], step, 1 + model.rounds)
        is_there = np.isfinite(flown).all(-1)
        again = replay_step(model, flight, state, heard, used, closed)
        differences = np.abs(again - flown)[is_there]
        checked += int(is_there.sum())
        largest = max(largest, float(differences.max(initial=0.0)))
        if np.isnan(differences).any():
            largest = float("nan")
        apart.append(float(np.linalg.norm(alone.position[0].numpy() - state[:, :2], axis=-1).max()))
        own = replay_step(model, flight, torch.cat(alone, -1)[0].numpy(), heard, used, closed)
        own = np.where(is_there[:, np.newaxis], own, 0.0)
        alone = move(alone, torch.from_numpy(np.nan_to_num(own)).unsqueeze(0), world)
    return Check(checked, largest, np.array(apart))


def replay_step(model: Any, flight: dict[str, Any], state: Array, heard: Array, used: Array, closed: Array) -> Array:
    """The controls of all agents, NaN at those that did not get so far."""
    position, velocity = torch.from_numpy(state).split(2, -1)
    known = measure(pairs_of(position), velocity, torch.from_numpy(used[0]), flight["input_limit"])
    measured = np.where(closed[0][:, np.newaxis], known.numpy(), np.nan)
    degree = heard.sum(-1, keepdims=True)
    matrix = np.where(heard, 1 / np.maximum(degree, 1), 0.0)
    with np.errstate(invalid="ignore"):
        return control_of(replay(model, matrix, measured, used[1:], closed[1:]), flight)
