"""What the activations learned: beta and h by layer and hop."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.methods import Variant
from graphact.experiments.report.sections.section import file_name
from graphact.experiments.report.summary import Summary, summarize
from graphact.experiments.report.tables.table import Entry, Table, TableLine

TITLE = "Learned activation weights"
CAPTION = (
    "β weighs the ReLU term, h1, h2, … the terms of the hops. Mean ± standard deviation over replicas and, for h, over "
    "features."
)


@dataclass(frozen=True)
class LearnedWeights:
    """One setting to be seen, and all of them to be unfolded; nothing where no activation has weights."""

    shown: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()


def learned_weights(
    cells: Iterable[Cell], *, name: str, setting: Callable[[Cell], str], headline: str
) -> LearnedWeights:
    """The tables of learned weights.

    Args:
        cells: the cells of networks, in every setting.
        name: beginning of the names of the files.
        setting: a cell's setting in words.
        headline: the setting to be seen.
    """
    learned = [cell for cell in cells if cell.is_model and any(run.beta or run.weights for run in cell.runs)]
    learned.sort(
        key=lambda cell: (Variant(cell.method, cell.hops).rank, cell.features or 0, cell.order or 0, setting(cell))
    )
    seen = [cell for cell in learned if setting(cell) == headline]
    rest = len(learned) > len(seen)
    shown = [([(cell, "") for cell in seen], file_name("weights", name), f"{TITLE}, {headline}")] if seen else []
    every = [(cell, setting(cell)) for cell in learned]
    folded = [(every, file_name("weights", name, "every-setting"), f"{TITLE} in every setting")] if rest else []
    return LearnedWeights(
        shown=tuple(weights_table(*table) for table in shown), folded=tuple(weights_table(*table) for table in folded)
    )


def weights_table(cells: Sequence[tuple[Cell, str]], name: str, title: str) -> Table:
    """One line for each network; every cell comes with the words that tell it from others of its method."""
    runs = [run for cell, _ in cells for run in cell.runs]
    layers = max(max(len(run.beta), len(run.weights)) for run in runs)
    hops = max((len(layer) for run in runs for layer in run.weights), default=0)
    names = ("β", *(f"h{hop + 1}" for hop in range(hops)))
    lines = (
        TableLine(
            ", ".join(part for part in (Variant(cell.method, cell.hops).label, words) if part),
            tuple(entry for layer in range(layers) for entry in layer_entries(cell, layer, hops)),
        )
        for cell, words in cells
    )
    return Table(
        name=name,
        title=title,
        caption=CAPTION,
        corner="Activation",
        columns=tuple(f"Layer {layer + 1}: {name}" for layer in range(layers) for name in names),
        lines=tuple(lines),
        digits=3,
        unit="Trained parameters",
        with_runs=False,
    )


def layer_entries(cell: Cell, layer: int, hops: int) -> tuple[Entry, ...]:
    """Beta and the weights of the hops of one layer."""
    return (beta_entry(cell, layer), *(hop_entry(cell, layer, hop) for hop in range(hops)))


def beta_entry(cell: Cell, layer: int) -> Entry:
    """Beta of a layer over the replicas."""
    return entry_of([run.beta[layer : layer + 1] for run in cell.runs])


def hop_entry(cell: Cell, layer: int, hop: int) -> Entry:
    """The weights of a hop over replicas and features."""
    by_run = [
        [values for hops in run.weights[layer : layer + 1] for values in hops[hop : hop + 1]] for run in cell.runs
    ]
    return entry_of([values for found in by_run for values in found])


def entry_of(by_run: Sequence[Sequence[float]]) -> Entry:
    """The summary of all numbers, counted by the runs they come from; nothing where there are none."""
    summary = summarize(value for values in by_run for value in values)
    if summary.runs == 0:
        return Entry(None)
    return Entry(Summary(summary.mean, summary.std, sum(bool(values) for values in by_run), summary.not_finite))
