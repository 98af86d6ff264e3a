"""Results on flocking: rows by policy and condition, and paired comparisons of policies with Holm's adjustment."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from graphact_lab.experiments.flocking.experiment import ORDER, USUAL, differing, world_of
from graphact_lab.protocols import is_pointwise
from graphact_lab.statistics import Difference, choose, difference, holm
from graphact_lab.store import Row, StoreError
from graphact_lab.style import Variant

GAPS = ("policy", "difference", "runs above", "p (Holm)", "effect d")
"""What :func:`compared` tells of each policy."""
AXES = {
    "loss": "Probability that a link is lost",
    "radius": "Communication radius",
    "agents": "Agents",
    "speed": "Initial speed",
    "noise": "Largest error of a measurement",
    "delay": "Steps that a message takes",
}


class Line(NamedTuple):
    """Policies of one kind."""

    method: str
    hops: int | None
    order: int
    delayed: bool
    exchanges: int
    parameters: int

    @property
    def label(self) -> str:
        return f"{Variant(self.method, self.hops).label}, K = {self.order}"

    @property
    def title(self) -> str:
        return self.label + (" (trained with delay)" if self.delayed else "")

    @property
    def is_pointwise(self) -> bool:
        return is_pointwise(self.method)


class Results:
    """Rows by line and condition."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        if change := differing(self.rows):
            raise StoreError(f"a report is of rows of one setting, got some with {change}; keep them in a folder each")
        networks = choose(self.rows, kind="model")
        self.lines = list(dict.fromkeys(Line(*(row[name] for name in Line._fields)) for row in networks))
        world, imitation = world_of(networks[0]["settings"]), networks[0]["settings"]["imitation"]
        trained = {name: world[name] for name in ("radius", "speed") if name in world}
        self.world = world
        self.usual = USUAL | trained | {"agents": imitation.get("agents", USUAL["agents"])}
        self.lines.sort(key=lambda line: (line.delayed, Variant(line.method, line.hops).rank, line.order))

    def of(self, line: Line, **condition: float) -> list[Row]:
        own = {name: getattr(line, name) for name in ("method", "hops", "order", "delayed")}
        return [*choose(self.rows, kind="model", condition=condition, **own)]  # type: ignore[list-item]

    def baseline(self, name: str, **condition: float) -> list[Row]:
        return [*choose(self.rows, kind="baseline", method=name, condition=condition)]  # type: ignore[list-item]

    def at(self, policy: Line | str, name: str, level: float) -> list[Row]:
        """The rows of policies, or of a baseline, at a level of a condition; at the usual one it is not named."""
        condition = {} if level == self.usual[name] else {name: level}
        return self.baseline(policy, **condition) if isinstance(policy, str) else self.of(policy, **condition)

    def levels(self, name: str) -> list[float]:
        return sorted({row["condition"][name] for row in self.rows if name in row["condition"]})

    def base(self, order: int = ORDER) -> list[Line]:
        return [line for line in self.lines if line.order == order and not line.delayed]


def values(rows: Iterable[Row], key: str = "value") -> list[float]:
    """Return the values of rows under a key, where they have it."""
    return [row[key] for row in rows if row.get(key) is not None]


def compared(results: Results, lines: Sequence[Line], reference: Line, **condition: float) -> list[Sequence[str]]:
    """Each line minus the reference, with Holm's p over all of them."""
    gaps: list[tuple[Line, Difference]] = []
    for line in lines:
        ours, theirs = results.of(line, **condition), results.of(reference, **condition)
        if line != reference and ours and len(ours) == len(theirs) and len(ours) > 1:
            gaps.append((line, difference(ours, theirs)))
    adjusted = holm([gap.p_unlike() for _, gap in gaps])
    return [
        (line.label, f"{gap.mean:+.3f} ± {gap.margin:.3f}", f"{gap.wins:.0%}", f"{p:.2g}", f"{gap.effect:+.1f}")
        for (line, gap), p in zip(gaps, adjusted, strict=True)
    ]


def best_pointwise(results: Results, order: int = ORDER, *, delayed: bool = False) -> Line | None:
    """The pointwise activation with the lowest cost on validation flights."""
    lines = [one for one in results.lines if one.is_pointwise and one.order == order and one.delayed == delayed]
    found = {line: fmean(values(results.of(line), "validation")) for line in lines}
    return min(found, key=found.__getitem__) if found else None


def references_of(results: Results) -> dict[str, Line]:
    """Return the references of comparisons by label: ReLU, and the best pointwise activation."""
    references = {line.label: line for line in results.base() if line.method == "relu"}
    best = best_pointwise(results)
    return references | ({best.label: best} if best else {})
