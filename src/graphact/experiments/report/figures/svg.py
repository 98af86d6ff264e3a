"""SVG that is read on light and on dark ground, alone or inside a page."""

import re
from html import escape

from graphact.experiments.report.figures.canvas import FAINT, WHITE
from graphact.experiments.report.methods import GREY, INK

# Drawn for light ground, in these colours; what becomes of them on dark ground
ON_DARK = {
    INK: "#e6e9ed",
    GREY: "#9aa4af",
    FAINT: "#3a4149",
    WHITE: "#14171b",
    "#0072b2": "#3d9be0",
    "#56b4e9": "#9ad6f7",
    "#009e73": "#19b88a",
}
FONTS = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
TAG = re.compile(r"<[^>]+>")
STYLE_SHEET = re.compile(r"<style[^>]*>.*?</style>", re.DOTALL)
JOINS = "stroke-linejoin: round; stroke-linecap: butt"


def dark_rules() -> str:
    """The style sheet that turns light figures into dark ones where the reader prefers that.

    The colours stay written at each shape, so programs that know no style sheets show the figure as drawn. The rules
    name no ancestor: markers are copies made by <use>, inside of which a rule sees nothing around them.
    """
    rules = [
        f'[style*="{role}: {light}"] {{ {role}: {dark} !important }}'
        for light, dark in ON_DARK.items()
        for role in ("fill", "stroke")
    ]
    return "@media (prefers-color-scheme: dark) { " + " ".join(rules) + " }"


def standalone_svg(svg: str, title: str, alt: str) -> str:
    """A file of its own, on a ground of its own: it may end up on a page that does not follow the reader's colours."""
    svg = in_our_fonts(svg[svg.index("<svg") :])
    style = f'<style type="text/css">*{{{JOINS}}} {dark_rules()}</style>'
    svg = STYLE_SHEET.sub(lambda _: style, svg, count=1)
    end = svg.index(">") + 1
    words = f"<title>{escape(title)}</title><desc>{escape(alt)}</desc>"
    ground = f'<rect width="100%" height="100%" style="fill: {WHITE}"/>'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{svg[:end]}{words}{ground}{svg[end:]}'


def inline_svg(svg: str, name: str, alt: str) -> str:
    """An element of a page: it takes the width it is given, and its names are its own."""
    box = re.search(r'viewBox="([^"]*)"', svg)
    if box is None:
        raise ValueError(f"svg must have a viewBox, got {svg[:120]!r}")
    svg = STYLE_SHEET.sub("", in_our_fonts(svg[svg.index("<svg") :]))
    svg = TAG.sub(lambda found: with_own_names(found.group(), name), svg)
    end = svg.index(">") + 1
    return f'<svg viewBox="{box.group(1)}" role="img" aria-label="{escape(alt)}">{svg[end:]}'


def with_own_names(tag: str, name: str) -> str:
    """A tag whose names, and those it refers to, begin with the figure's."""
    tag = tag.replace("xlink:href=", "href=")
    return re.sub(r'(\bid="|\bhref="#|url\(#)', rf"\g<1>{name}-", tag)


def in_our_fonts(svg: str) -> str:
    """Text in the fonts of the reader's system."""
    return TAG.sub(lambda found: re.sub(r"font-family: [^;\"]*", f"font-family: {FONTS}", found.group()), svg)
