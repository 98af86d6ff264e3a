"""From a figure to its files and to its place in a page."""

from dataclasses import dataclass

from graphact.experiments.report.figures.canvas import house_style, settle, to_png, to_svg
from graphact.experiments.report.figures.charts import Figure, LineChart
from graphact.experiments.report.figures.dots import draw_dots
from graphact.experiments.report.figures.lines import draw_lines
from graphact.experiments.report.figures.svg import inline_svg, standalone_svg


@dataclass(frozen=True)
class Rendered:
    """A figure in pixels, as an SVG file, and as an SVG element of a page."""

    png: bytes
    svg: str
    inline: str


def render(figure: Figure) -> Rendered:
    """Draw a figure once, for all three.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    with house_style():
        sheet = draw_lines(figure.chart) if isinstance(figure.chart, LineChart) else draw_dots(figure.chart)
        settle(sheet)
        svg = to_svg(sheet)
        png = to_png(sheet)
    return Rendered(png, standalone_svg(svg, figure.title, figure.alt), inline_svg(svg, figure.name, figure.alt))
