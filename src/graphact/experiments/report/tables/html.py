"""A table as HTML: scrolls in a box of its own, says in words what its signs say."""

from graphact.experiments.report.markup import Markup, element, markup, unbroken
from graphact.experiments.report.tables.table import SIGNS, Entry, Table, TableLine

WORDS = {
    "inside": "inside the paper's spread",
    "above": "above the paper's spread",
    "below": "below the paper's spread",
}


def to_html(table: Table) -> Markup:
    """The table below its caption, which stays in view when the table is scrolled."""
    identity = f"caption-{table.name}"
    words = unbroken(f" {table.unit}. {table.caption}".rstrip())
    caption = element("p", element("strong", unbroken(f"{table.title}.")), words, class_="caption", id=identity)
    body = element("tbody", *(html_line(line, table) for line in table.lines if not line.is_baseline))
    simple = [html_line(line, table) for line in table.lines if line.is_baseline]
    foot = element("tbody", *simple, class_="baselines") if simple else Markup()
    content = element("table", html_header(table), body, foot, aria_labelledby=identity)
    box = element("div", content, class_="scroll", role="region", tabindex="0", aria_labelledby=identity)
    return element("div", caption, box, class_="table")


def html_header(table: Table) -> Markup:
    """One line of headings, or two where the paper's numbers stand beside ours."""
    if not table.has_paper:
        cells = (element("th", column, scope="col") for column in table.columns)
        return element("thead", element("tr", element("th", table.corner, scope="col", class_="first"), *cells))
    pairs = (element("th", column, scope="colgroup", colspan="2", class_="pair") for column in table.columns)
    names = (
        markup(element("th", "ours", scope="col", class_="pair"), element("th", "paper", scope="col"))
        for _ in table.columns
    )
    return element(
        "thead",
        element("tr", element("th", table.corner, scope="col", rowspan="2", class_="first"), *pairs),
        element("tr", *names),
    )


def html_line(line: TableLine, table: Table) -> Markup:
    """One line of the table."""
    cells = []
    for entry in line.entries:
        cells.append(element("td", html_entry(entry, table), class_="pair" if table.has_paper else None))
        if table.has_paper:
            cells.append(element("td", entry.paper_text(table.digits), class_="paper"))
    return element("tr", element("th", line.label, scope="row", class_="first"), *cells)


def html_entry(entry: Entry, table: Table) -> Markup:
    """Our result, the best in bold, the sign of where it lies, and below it the number of runs."""
    sign = html_sign(entry.against_paper) if table.has_paper else Markup()
    if entry.ours is None:
        return markup(element("span", entry.ours_text(table.digits), class_="missing", title="no result yet"), sign)
    value = element("b" if entry.best else "span", entry.ours_text(table.digits))
    return markup(value, sign, element("small", entry.runs_text, sign and html_sign(None)) if table.with_runs else "")


def html_sign(where: str | None) -> Markup:
    """The sign of where our mean lies, with words for those who do not see it; room for one where there is none."""
    if where is None:
        return element("span", class_="sign")
    return element("span", SIGNS[where], class_="sign", role="img", aria_label=WORDS[where], title=WORDS[where])
