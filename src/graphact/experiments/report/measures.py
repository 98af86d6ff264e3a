"""What an experiment measures and how its numbers are written."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """A metric as tables, axes and sentences show it.

    Attributes:
        axis: the label of an axis.
        digits: decimals.
        higher_is_better: whether a larger number is the better one.
        unit: what follows a number in a sentence.
    """

    axis: str
    digits: int
    higher_is_better: bool = False
    unit: str = ""


MEASURES = {
    "source-localization": Measure("Test accuracy (%)", 1, higher_is_better=True, unit="\N{NO-BREAK SPACE}%"),
    "consensus": Measure("Test RMSE", 4),
    "denoising": Measure("Test RMSE (kelvin)", 3),
    "recommendation": Measure("Test RMSE (stars)", 3),
}


def cost(measure: Measure, mean: float) -> float:
    """A number that is smaller the better a mean is."""
    return -mean if measure.higher_is_better else mean
