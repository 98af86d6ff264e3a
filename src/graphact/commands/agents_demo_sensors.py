"""The sensors of graphact agents demo: places, measurements, the denoiser they share, and their results so far."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphact.agents.messages import Array

if TYPE_CHECKING:
    from graphact import Graph
    from graphact.nn import GCNN

ENTRIES, NOISE, NEIGHBORS, STEPS = 500, 0.5, 4, 300
EVENTS = {
    "kill": "sensor {} is killed (kill -9)",
    "start": "sensor {} is started again",
    "stop": "sensor {} stands still (SIGSTOP)",
    "continue": "sensor {} goes on (SIGCONT)",
}


@dataclass
class SensorNetwork:
    """Sensors, what they measure, and the results of their agents so far."""

    graph: "Graph"
    model: "GCNN"
    places: Array  # (N, 2) in the unit square
    truth: Array  # the field at the sensors, (time, N)
    measured: Array  # the same with noise
    central: Array  # the outputs of the centralised model
    runs: int
    killed: int  # the sensor whose process is killed and started again
    stopped: int  # the sensor whose process is stopped and continued
    outputs: Array  # of the agents, (time, N), NaN where there is none
    missed: dict[tuple[int, int], int] = field(default_factory=dict)  # links, by (run, node)
    seconds: list[float] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    first: int = -1  # the first run shown; -1 before it is known

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

    @property
    def shown(self) -> range:
        return range(self.first, self.first + self.runs)

    def links_missed(self, run: int) -> int:
        return sum(missed for (number, _), missed in self.missed.items() if number == run)

    def answers(self, run: int) -> int:
        return sum(number == run for number, _ in self.missed)

    def is_complete(self, run: int) -> bool:
        """Whether every node has answered in a run, with every link."""
        return self.answers(run) == len(self.places) and self.links_missed(run) == 0

    def errors(self, run: int) -> tuple[float, float]:
        """Root mean square errors of the measurements and of the outputs."""
        at = run % ENTRIES
        there = ~np.isnan(self.outputs[at])
        if not there.any():
            return math.nan, math.nan
        before, after = ((values[at] - self.truth[at])[there] for values in (self.measured, self.outputs))
        return math.sqrt(np.square(before).mean()), math.sqrt(np.square(after).mean())

    def summary(self) -> str:
        """Two lines at the end."""
        complete = [run for run in self.shown if self.is_complete(run)]
        at = [run % ENTRIES for run in complete]
        apart = float(np.abs(self.outputs[at] - self.central[at]).max()) if complete else math.nan
        before, after = np.nanmean([self.errors(run) for run in self.shown], axis=0)
        quick = 1000 * float(np.median(self.seconds)) if self.seconds else math.nan
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
