"""What the demonstration is about: sensors, what they measure, what they answer, and what befalls them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphact.agents.messages import Array

if TYPE_CHECKING:
    from graphact import Graph
    from graphact.nn import GCNN

ENTRIES, NOISE, NEIGHBORS, STEPS = 500, 0.5, 4, 300
SENTENCES = {
    "kill": "sensor {} is killed (kill -9)",
    "start": "sensor {} is started again",
    "stop": "sensor {} stands still (SIGSTOP)",
    "continue": "sensor {} goes on (SIGCONT)",
}


@dataclass
class Story:
    """A sensor network over time.

    Attributes:
        places: where the sensors are, ``(N, 2)`` in the unit square.
        truth: the field at the sensors, ``(time, N)``.
        measured: the same with noise.
        central: what the centralised model makes of it.
        outputs: what agents answered, ``(time, N)``, NaN where none did.
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
    victim: int
    sleeper: int
    outputs: Array
    missed: dict[tuple[int, int], int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    happened: list[tuple[int, str]] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    first: int = -1

    @classmethod
    def invent(cls, sensors: int, runs: int, seed: int) -> "Story":
        """Places, a field with two moving bumps, noise, and a model trained to remove it."""
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
        degrees = np.diff(graph.incoming.pointers.numpy())
        victim, sleeper = (int(i) for i in np.argsort(-degrees, kind="stable")[[0, 2]])
        return cls(graph, model, places, truth, measured, central, runs, victim, sleeper, np.full_like(truth, np.nan))

    @property
    def events(self) -> dict[int, str]:
        """What happens, by the number of runs since the first."""
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

    def begin(self, run: int) -> None:
        """All agents listen, and this is the first run to show."""
        self.first = run

    def tell(self, run: int, what: str) -> None:
        """Note what happens to whom."""
        who = self.victim if what in ("kill", "start") else self.sleeper
        self.happened.append((run, SENTENCES[what].format(who)))
        (self.down.add if what in ("kill", "stop") else self.down.discard)(who)

    def hear(self, events: list[dict[str, Any]]) -> None:
        """Take in what agents said."""
        for event in events:
            if event["event"] == "result" and event["run"] >= self.first:
                self.outputs[event["run"] % ENTRIES, event["node"]] = event["output"][0]
                self.missed[event["run"], event["node"]] = sum(map(len, event["missed"]))
                if event["complete"]:
                    self.seconds.append(event["seconds"])

    def links_missed(self, run: int) -> int:
        """Over all nodes and rounds of a run."""
        return sum(missed for (number, _), missed in self.missed.items() if number == run)

    def answers(self, run: int) -> int:
        """How many nodes have answered in a run."""
        return sum(number == run for number, _ in self.missed)

    def errors(self, run: int) -> tuple[float, float]:
        """Root mean square errors of what was measured and of what was answered."""
        at = run % ENTRIES
        there = ~np.isnan(self.outputs[at])
        if not there.any():
            return float("nan"), float("nan")
        squares = [np.square(values[at] - self.truth[at])[there].mean() for values in (self.measured, self.outputs)]
        return float(np.sqrt(squares[0])), float(np.sqrt(squares[1]))

    def summary(self) -> str:
        """What came of it."""
        shown = range(self.first, self.first + self.runs)
        whole = [r for r in shown if self.answers(r) == len(self.places) and self.links_missed(r) == 0]
        at = [run % ENTRIES for run in whole]
        apart = float(np.abs(self.outputs[at] - self.central[at]).max()) if whole else float("nan")
        before, after = np.nanmean([self.errors(run) for run in shown], axis=0)
        quick = 1000 * float(np.median(self.seconds)) if self.seconds else float("nan")
        return (
            f"{self.runs} inferences, {len(whole)} of them with every sensor and every link; these differ from the "
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
    """Teach the model to remove noise: a few seconds of Adam."""
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
