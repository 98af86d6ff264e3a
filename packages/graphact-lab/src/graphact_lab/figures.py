"""The sheet that figures are drawn on: one look, and bytes that do not depend on the day or the reader's settings."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INK, GREY, FAINT, WHITE = "#1f2328", "#7d8590", "#d5d9de", "#ffffff"
WIDTH, PIXELS_PER_INCH = 4.0, 300
FONT = "DejaVu Sans"
SETTINGS: Any = {
    **{"axes.axisbelow": True, "axes.edgecolor": GREY, "axes.linewidth": 0.7, "axes.titlesize": 8.5},
    **{"axes.labelcolor": INK, "axes.labelsize": 8.5, "axes.spines.right": False, "axes.spines.top": False},
    **{"font.family": [FONT], "font.size": 8, "text.color": INK, "text.parse_math": False},
    **{"grid.color": FAINT, "grid.linewidth": 0.5, "svg.fonttype": "none", "svg.hashsalt": "graphact"},
    **{"legend.fontsize": 7.5, "legend.frameon": False},
    **{"xtick.color": GREY, "xtick.labelcolor": INK, "xtick.major.size": 3, "xtick.major.width": 0.7},
    **{"ytick.color": GREY, "ytick.labelcolor": INK, "ytick.major.size": 3, "ytick.major.width": 0.7},
}


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib's defaults, then ours, for the time of drawing; whatever the reader's own settings are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def new_sheet(height: float, width: float = WIDTH) -> Any:
    """An empty figure that belongs to no window system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(sheet)
    return sheet


def settle(sheet: Any) -> None:
    """Compute the layout once and round it: the solver's last digits differ from run to run."""
    sheet.draw_without_rendering()
    sheet.set_layout_engine("none")
    for axes in sheet.axes:
        axes.set_position([round(edge, 4) for edge in axes.get_position().bounds])


def to_png(sheet: Any) -> bytes:
    """The figure in pixels, on white, in 256 colours: a third of the bytes, and no eye sees the difference."""
    from PIL import Image

    sheet.savefig(drawn := io.BytesIO(), format="png", dpi=PIXELS_PER_INCH, facecolor=WHITE)
    image = Image.open(drawn).convert("RGB")
    image = image.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    image.save(png := io.BytesIO(), format="PNG", optimize=True)
    return png.getvalue()


def to_svg(sheet: Any) -> str:
    """The figure as matplotlib writes it, without background and date."""
    undated = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    sheet.savefig(svg := io.BytesIO(), format="svg", transparent=True, metadata=undated)
    return svg.getvalue().decode()
