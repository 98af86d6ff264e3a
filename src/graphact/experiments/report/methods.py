"""How methods are called and drawn: one name, colour, marker and line for each, in every table and figure."""

from dataclasses import dataclass

INK = "#1f2328"
GREY = "#7d8590"


@dataclass(frozen=True)
class Style:
    """How a method looks. The colours are those of Okabe and Ito, which colour-blind readers tell apart."""

    color: str
    marker: str
    line: str | tuple[float, tuple[float, ...]]
    size: float = 1.0  # of the marker, so that all look equally large


@dataclass(frozen=True)
class Method:
    """A method's name in tables, its name in a sentence, and its looks."""

    short: str
    long: str
    style: Style


# In the order of the paper's tables. Max is blue, median orange, the localized one of each lighter and dashed
METHODS = {
    "relu": Method("ReLU", "ReLU", Style(INK, "o", "-")),
    "max-l": Method("Max L.", "localized max", Style("#56b4e9", "v", (0, (5, 1.5)), 1.1)),
    "max-ga": Method("Max G.A.", "graph-adaptive max", Style("#0072b2", "^", "-", 1.1)),
    "median-l": Method("Median L.", "localized median", Style("#e69f00", "s", (0, (5, 1.5)), 0.9)),
    "median-ga": Method("Median G.A.", "graph-adaptive median", Style("#d55e00", "D", "-", 0.85)),
    "kernel-ga": Method("Kernel G.A.", "graph-adaptive kernel", Style("#009e73", "*", (0, (4, 1.2, 1, 1.2)), 1.6)),
    "fir": Method("FIR", "FIR (no nonlinearity)", Style("#cc79a7", "X", (0, (1.2, 1.2)), 1.1)),
}
STYLE_OF_OTHERS = Style(GREY, "h", (0, (2.5, 1, 1, 1, 1, 1)))


@dataclass(frozen=True)
class Variant:
    """A method with its number of hops."""

    method: str
    hops: int | None

    @property
    def known(self) -> Method:
        """Names and looks of the method; one that is not in the list goes by its own name."""
        return METHODS.get(self.method) or Method(self.method, self.method, STYLE_OF_OTHERS)

    @property
    def style(self) -> Style:
        """Colour, marker and line."""
        return self.known.style

    @property
    def label(self) -> str:
        """The name in tables and figures, the hops in brackets as in the paper.

        Example:
            >>> from graphact.experiments.report.methods import Variant
            >>> Variant("max-ga", 2).label, Variant("relu", None).label
            ('Max G.A. (2)', 'ReLU')
        """
        return self.known.short if self.hops is None else f"{self.known.short} ({self.hops})"

    @property
    def long_label(self) -> str:
        """The name in a sentence.

        Example:
            >>> from graphact.experiments.report.methods import Variant
            >>> Variant("max-ga", 2).long_label
            'graph-adaptive max (2 hops)'
        """
        if self.hops is None:
            return self.known.long
        return f"{self.known.long} ({self.hops} hop{'' if self.hops == 1 else 's'})"

    @property
    def rank(self) -> tuple[int, str, int]:
        """Position in tables: the paper's order, then others by name, each by hops."""
        position = list(METHODS).index(self.method) if self.method in METHODS else len(METHODS)
        return position, self.method, -1 if self.hops is None else self.hops
