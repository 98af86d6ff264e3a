"""graphact agents demo: sensors on this machine, one process each, that denoise what they measure together."""

import argparse
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphact.agents.messages import Array
from graphact.commands.options import add_shared

if TYPE_CHECKING:
    from graphact import Graph
    from graphact.agents.processes import Processes
    from graphact.commands.agents_demo_view import View
    from graphact.nn import GCNN

SLOT, PERIOD = 0.1, 0.5
ENTRIES, NOISE, NEIGHBORS, STEPS = 500, 0.5, 4, 300
EVENTS = {
    "kill": "sensor {} is killed (kill -9)",
    "start": "sensor {} is started again",
    "stop": "sensor {} stands still (SIGSTOP)",
    "continue": "sensor {} goes on (SIGCONT)",
}


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="watch agents work, one process each, on this machine",
        description="Train a small denoiser for a sensor graph, start one process for each sensor, kill one and stop "
        "another while they work, and draw what happened.",
    )
    parser.add_argument("--sensors", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--transport", choices=("zenoh", "udp"), default="udp", help="default: udp")
    parser.add_argument("--runs", type=int, default=30, help="inferences, two a second (default: 30)")
    add_shared(parser, "--seed")
    parser.add_argument(
        "--out", type=Path, default=Path("out/agents-demo"), metavar="DIR", help="where the figure goes"
    )
    parser.set_defaults(command=demo)


def demo(options: argparse.Namespace) -> int:
    """Train, start, watch, draw."""
    from graphact._checks import check_integer
    from graphact.agents.processes import Processes
    from graphact.commands.agents_demo_view import draw, open_view

    check_integer("--sensors", options.sensors, minimum=8)
    check_integer("--runs", options.runs, minimum=12)
    progress(f"training a denoiser for {options.sensors} sensors ...")
    network = SensorNetwork.make(options.sensors, options.runs, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        folders, files = network.deploy(Path(folder))
        origin = time.time()
        arguments = ["--transport", options.transport, "--origin", repr(origin), "--repeat"]
        arguments += ["--period", repr(PERIOD), "--slot", repr(SLOT)]
        progress(f"starting {options.sensors} processes that talk over {options.transport} ...")
        with Processes(folders, arguments, files) as processes, open_view(network) as view:
            processes.wait_until_ready()
            network.first = 1 + int((time.time() + PERIOD - origin) / PERIOD)
            watch(network, processes, view, origin)
            processes.stop()
            processes.wait(20)
    path = draw(network, options.out)
    sys.stdout.write(f"{network.summary()}\nfigure: {path}\n")
    return 0


def progress(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def watch(network: "SensorNetwork", processes: "Processes", view: "View", origin: float) -> None:
    """Collect results run by run, and kill, stop and restart two processes when it is time."""
    for run in range(network.first, network.first + network.runs):
        event = network.schedule.get(run - network.first)
        if event is not None:
            network.note(run, event)
        if event == "kill":
            processes.kill(network.killed)
        elif event == "start":
            processes.start(network.killed)
        elif event is not None:
            processes.running[network.stopped].send_signal(signal.SIGSTOP if event == "stop" else signal.SIGCONT)
        view.show(network, run)
        until = origin + (run + 1) * PERIOD - 0.02
        while time.time() < until:
            network.collect(processes.read(max(0.0, until - time.time())))
            view.show(network, run)


@dataclass
class SensorNetwork:
    """Sensors, what they measure, and the results of their agents so far.

    Attributes:
        places: where the sensors are, ``(N, 2)`` in the unit square.
        truth: the field at the sensors, ``(time, N)``.
        measured: the same with noise.
        central: the outputs of the centralised model.
        killed: the sensor whose process is killed and started again.
        stopped: the sensor whose process is stopped and continued.
        outputs: the outputs of the agents, ``(time, N)``, NaN where there is none.
        missed: links missed, by (run, node).
        first: the first run shown; -1 before it is known.
    """

    graph: "Graph"
    model: "GCNN"
    places: Array
    truth: Array
    measured: Array
    central: Array
    runs: int
    killed: int
    stopped: int
    outputs: Array
    missed: dict[tuple[int, int], int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    first: int = -1

    @classmethod
    def make(cls, sensors: int, runs: int, seed: int) -> "SensorNetwork":
        """Draw places, a field with two moving bumps and noise, and train a model to remove the noise."""
        import torch

        from graphact import Graph
        from graphact.nn import GCNN

        rng = np.random.default_rng(seed)
        places = scattered(sensors, rng)
        graph = Graph.nearest_neighbors(torch.from_numpy(places), NEIGHBORS).normalize("spectral")
        torch.manual_seed(seed)
        model = GCNN([1, 8], order=2, activation="max-ga", hops=1, out_features=1).double()
        train(model, graph, moving_field(places, np.arange(2000) * 0.37 + 1000), rng)
        truth = moving_field(places, np.arange(ENTRIES) * 0.12)
        measured = truth + NOISE * rng.normal(size=truth.shape)
        with torch.no_grad():
            central = model(torch.from_numpy(measured[..., None]), graph).numpy()[..., 0]
        killed, stopped = (int(i) for i in np.argsort(-graph.degree.numpy(), kind="stable")[[0, 2]])
        return cls(graph, model, places, truth, measured, central, runs, killed, stopped, np.full_like(truth, np.nan))

    @property
    def schedule(self) -> dict[int, str]:
        """The events, by the number of runs since the first."""
        third = self.runs // 3
        return {third: "kill", third + 3: "start", 2 * third: "stop", 2 * third + 2: "continue"}

    def deploy(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """The folders of all nodes, and the files with what they measure."""
        from graphact import agents
        from graphact.agents.addresses import free_addresses

        folders = agents.split(self.model, self.graph, folder, addresses=free_addresses(len(self.places)))
        files = [each / "measured.npy" for each in folders]
        for i, file in enumerate(files):
            np.save(file, self.measured[:, i, None])
        return folders, files

    def note(self, run: int, event: str) -> None:
        """Keep which event hit which sensor."""
        sensor = self.killed if event in ("kill", "start") else self.stopped
        self.events.append((run, EVENTS[event].format(sensor)))
        (self.down.add if event in ("kill", "stop") else self.down.discard)(sensor)

    def collect(self, reports: list[dict[str, Any]]) -> None:
        """Keep the results among what the processes printed."""
        for report in reports:
            if report["event"] == "result" and report["run"] >= self.first:
                self.outputs[report["run"] % ENTRIES, report["node"]] = report["output"][0]
                self.missed[report["run"], report["node"]] = sum(map(len, report["missed"]))
                if report["complete"]:
                    self.seconds.append(report["seconds"])

    def links_missed(self, run: int) -> int:
        """Over all nodes and rounds of a run."""
        return sum(missed for (number, _), missed in self.missed.items() if number == run)

    def answers(self, run: int) -> int:
        """How many nodes have answered in a run."""
        return sum(number == run for number, _ in self.missed)

    def is_complete(self, run: int) -> bool:
        """Whether every node has answered in a run, with every link."""
        return self.answers(run) == len(self.places) and self.links_missed(run) == 0

    def errors(self, run: int) -> tuple[float, float]:
        """Root mean square errors of the measurements and of the outputs."""
        at = run % ENTRIES
        there = ~np.isnan(self.outputs[at])
        if not there.any():
            return float("nan"), float("nan")
        squares = [np.square(values[at] - self.truth[at])[there].mean() for values in (self.measured, self.outputs)]
        return float(np.sqrt(squares[0])), float(np.sqrt(squares[1]))

    def summary(self) -> str:
        """Two lines at the end."""
        shown = range(self.first, self.first + self.runs)
        complete = [run for run in shown if self.is_complete(run)]
        at = [run % ENTRIES for run in complete]
        apart = float(np.abs(self.outputs[at] - self.central[at]).max()) if complete else float("nan")
        before, after = np.nanmean([self.errors(run) for run in shown], axis=0)
        quick = 1000 * float(np.median(self.seconds)) if self.seconds else float("nan")
        return (
            f"{self.runs} inferences, {len(complete)} of them with every sensor and every link; these differ from the "
            f"centralised model by at most {apart:.1g}\n"
            f"RMSE {before:.3f} measured, {after:.3f} after denoising; an inference takes {quick:.1f} ms (median)"
        )


def scattered(count: int, rng: np.random.Generator) -> Array:
    """Random places that keep some distance from each other: of ten candidates, always the loneliest."""
    places = rng.random((1, 2))
    while len(places) < count:
        candidates = rng.random((10, 2))
        distances = np.linalg.norm(candidates[:, None] - places[None], axis=-1).min(axis=1)
        places = np.vstack([places, candidates[distances.argmax()]])
    return places


def moving_field(places: Array, times: Array) -> Array:
    """Two bumps, one warm and one cold, that wander, ``(time, N)``."""
    value = np.zeros((len(times), len(places)))
    for sign, speed, phase in ((2.0, 0.31, 0.0), (-1.6, 0.23, 2.5)):
        angle = speed * times + phase
        centre = np.stack([0.5 + 0.35 * np.cos(angle), 0.5 + 0.35 * np.sin(1.3 * angle)], axis=-1)
        distance = np.linalg.norm(places[None] - centre[:, None], axis=-1)
        value += sign * np.exp(-np.square(distance / 0.35))
    return value


def train(model: "GCNN", graph: "Graph", clean: Array, rng: np.random.Generator) -> None:
    """Train the model to remove noise: a few seconds of Adam."""
    import torch

    targets = torch.from_numpy(clean[..., None])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(STEPS):
        chosen = torch.from_numpy(rng.integers(0, len(targets), 100))
        noise = torch.from_numpy(NOISE * rng.normal(size=(100, *targets.shape[1:])))
        loss = (model(targets[chosen] + noise, graph) - targets[chosen]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
