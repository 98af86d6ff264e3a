"""All sections, in the paper's order."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.sections.consensus import consensus
from graphact.experiments.report.sections.denoising import denoising
from graphact.experiments.report.sections.recommendation import recommendation
from graphact.experiments.report.sections.section import Section
from graphact.experiments.report.sections.source_localization import source_localization

SECTIONS: Mapping[str, Callable[[Sequence[Cell]], Section]] = {
    "source-localization": source_localization,
    "consensus": consensus,
    "denoising": denoising,
    "recommendation": recommendation,
}


def sections_of(cells: Iterable[Cell]) -> list[Section]:
    """The sections of the experiments that there are cells of."""
    every = list(cells)
    by_experiment = {name: [cell for cell in every if cell.experiment == name] for name in SECTIONS}
    return [SECTIONS[name](found) for name, found in by_experiment.items() if found]
