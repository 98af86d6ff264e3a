"""The sheet that charts are drawn on: size, type, colours, and the files it becomes."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphact.experiments.report.methods import GREY, INK

WIDTH = 4.0
PIXELS_PER_INCH = 300
FONT = "DejaVu Sans"
FAINT = "#d5d9de"
WHITE = "#ffffff"
SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8.5,
    "axes.unicode_minus": True,
    "font.family": [FONT],
    "font.size": 8,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "graphact",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 8,
    "xtick.major.size": 3,
    "xtick.major.width": 0.7,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8,
    "ytick.major.size": 3,
    "ytick.major.width": 0.7,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib's defaults, then ours, for the time of drawing; whatever the reader's own settings are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def new_sheet(height: float) -> Any:
    """An empty figure that belongs to no window system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(sheet)
    return sheet


def settle(sheet: Any) -> None:
    """Compute the layout once and round it: the solver's last digits differ from run to run."""
    sheet.draw_without_rendering()
    sheet.set_layout_engine("none")
    for axes in sheet.axes:
        axes.set_position([round(edge, 4) for edge in axes.get_position().bounds])


def to_png(sheet: Any) -> bytes:
    """The figure in pixels, on white."""
    buffer = io.BytesIO()
    sheet.savefig(buffer, format="png", dpi=PIXELS_PER_INCH, facecolor=WHITE, metadata={"Software": None})
    return buffer.getvalue()


def to_svg(sheet: Any) -> str:
    """The figure as matplotlib writes it, without background and date."""
    buffer = io.BytesIO()
    nothing = {"Creator": None, "Date": None, "Format": None, "Type": None}
    sheet.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return buffer.getvalue().decode()


def drawable(text: str) -> str:
    """Text that the font has letters for, and that matplotlib does not read as an instruction to hide it."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont(FONT)).get_charmap()
    shown = "".join(letter if ord(letter) in known else "?" for letter in text)
    return f" {shown}" if shown.startswith("_") else shown
