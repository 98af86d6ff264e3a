"""One look for every figure and table: how methods are called and drawn, and how numbers read."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from graphact_lab.figures import GREY, INK


@dataclass(frozen=True)
class Style:
    """Names and looks of a method. The colours are Okabe and Ito's, which colour-blind readers tell apart."""

    short: str  # in tables
    long: str  # in a sentence
    color: str
    marker: str
    line: str | tuple[float, tuple[float, ...]]
    size: float = 1.0  # of the marker, so that all look equally large


DASHED = (0, (5, 1.5))
# In the order of the paper's tables. Max is blue, median orange, the localized one of each lighter and dashed
METHODS = {
    "relu": Style("ReLU", "ReLU", INK, "o", "-"),
    "max-l": Style("Max L.", "localized max", "#56b4e9", "v", DASHED, 1.1),
    "max-ga": Style("Max G.A.", "graph-adaptive max", "#0072b2", "^", "-", 1.1),
    "median-l": Style("Median L.", "localized median", "#e69f00", "s", DASHED, 0.9),
    "median-ga": Style("Median G.A.", "graph-adaptive median", "#d55e00", "D", "-", 0.85),
    "kernel-ga": Style("Kernel G.A.", "graph-adaptive kernel", "#009e73", "*", (0, (4, 1.2, 1, 1.2)), 1.6),
    "fir": Style("FIR", "FIR (no nonlinearity)", "#cc79a7", "X", (0, (1.2, 1.2)), 1.1),
}

# Others of our family, and those of other authors
FURTHER = {
    name: Style(short, long, color, marker, (0, (3, 1, 1, 1)), 1.1)
    for name, short, long, color, marker in (
        ("mean-ga", "Mean G.A.", "graph-adaptive mean", "#009e73", "<"),
        ("soft-maximum-ga", "Soft max. G.A.", "graph-adaptive soft maximum", "#009e73", "^"),
        ("trimmed-mean-ga", "Trimmed mean G.A.", "graph-adaptive trimmed mean", "#009e73", "s"),
        ("weighted-mean-ga", "Weighted mean G.A.", "graph-adaptive weighted mean", "#009e73", "D"),
        ("mixture-ga", "Mixture G.A.", "graph-adaptive mixture", "#009e73", "P"),
        ("shiftless-max", "Max, no shift", "maximum without shift", "#cc79a7", "^"),
        ("shiftless-median", "Median, no shift", "median without shift", "#cc79a7", "D"),
        ("max-k", "MaxK", "MaxK", "#cc79a7", "h"),
        ("grelu", "GReLU", "GReLU", "#cc79a7", "o"),
        ("digraf", "DiGRAF", "DiGRAF", "#cc79a7", "p"),
    )
}
# ReLU after further shifts, and robust convolutions with ReLU
CONTROLS = {"relu-hops": Style("ReLU + hops", "ReLU after further shifts", INK, "P", (0, (1, 1)))}
RIVALS = {
    "median-gcn": Style("MedianGCN", "MedianGCN", "#cc79a7", "s", (0, (1.2, 1.2)), 1.0),
    "soft-median-gcn": Style("Soft Median", "Soft Median GCN", "#cc79a7", "v", (0, (3, 1)), 1.0),
}

# Beside ReLU, and less important: all of one colour, told apart by their markers
POINTWISE = {
    name: Style(short, short, GREY, marker, (0, (2.5, 1, 1, 1, 1, 1)))
    for name, short, marker in (
        ("identity", "Identity", "X"),
        ("leaky-relu", "LeakyReLU", "<"),
        ("prelu", "PReLU", ">"),
        ("elu", "ELU", "p"),
        ("gelu", "GELU", "h"),
        ("silu", "SiLU", "H"),
        ("tanh", "tanh", "P"),
        ("abs", "|x|", "d"),
        ("maxout", "Maxout", "8"),
    )
}
STYLES = METHODS | POINTWISE | FURTHER | CONTROLS | RIVALS


@dataclass(frozen=True)
class Variant:
    """A method with its number of hops.

    Example:
        >>> Variant("max-ga", 2).label, Variant("relu", None).label, Variant("max-ga", 2).long_label
        ('Max G.A. (2)', 'ReLU', 'graph-adaptive max (2 hops)')
    """

    method: str
    hops: int | None

    @property
    def style(self) -> Style:
        """Names and looks of the method; one that is not in the list goes by its own name."""
        return STYLES.get(self.method) or Style(self.method, self.method, GREY, "h", (0, (2.5, 1, 1, 1, 1, 1)))

    @property
    def label(self) -> str:
        return self.style.short + ("" if self.hops is None else f" ({self.hops})")

    @property
    def long_label(self) -> str:
        return self.style.long + ("" if self.hops is None else f" ({self.hops} hop{'' if self.hops == 1 else 's'})")

    @property
    def rank(self) -> tuple[int, str, int]:
        """Position in tables: the paper's order, then others by name, each by hops."""
        position = list(STYLES).index(self.method) if self.method in STYLES else len(STYLES)
        return position, self.method, -1 if self.hops is None else self.hops


def title_of(dataset: Any) -> str:
    """A data set as readers know it."""
    usual = {"citeseer": "CiteSeer", "pubmed": "PubMed", "blogcatalog": "BlogCatalog"}
    name = str(dataset)
    return usual.get(name, name.replace("_filtered", "").capitalize() if name.islower() else name)


def format_number(value: float, digits: int, *, small: bool = False) -> str:
    """A number with so many decimals, or in scientific notation where they would be noise.

    With ``small`` also where they would all be 0 although the number is not.

    Example:
        >>> format_number(73.14, 1), format_number(-0.04, 1), format_number(123456789.0, 1)
        ('73.1', '0.0', '1.23e+08')
        >>> format_number(2.31e-6, 4), format_number(2.31e-6, 4, small=True), format_number(0.0, 4, small=True)
        ('0.0000', '2.3e-06', '0.0000')
    """
    if small and 0 < abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:.3g}" if abs(value) >= 1e5 else f"{value:z.{digits}f}"


def spread(mean: float, std: float, digits: int, *, small: bool = False) -> str:
    """A mean with its standard deviation as tables show it; with ``small``, both in scientific notation if both are 0.

    Example:
        >>> spread(73.14, 2.0, 1), spread(2e-6, 1e-6, 4, small=True), spread(0.02, 3.0, 1, small=True)
        ('73.1 ± 2.0', '2.0e-06 ± 1.0e-06', '0.0 ± 3.0')
    """
    if math.isnan(mean):
        return "diverged"
    least = 0.5 * 10.0**-digits
    small = small and abs(mean) < least and not std >= least  # beside a number with these decimals, 0.0 stays 0.0
    first = format_number(mean, digits, small=small)
    return first if math.isnan(std) else f"{first} ± {format_number(std, digits, small=small)}"


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, in which |x| is one cell."""
    marks = ["---", *["---:"] * (len(header) - 1)]
    rows = ((cell.replace("|", "\\|") for cell in cells) for cells in (header, marks, *lines))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)
