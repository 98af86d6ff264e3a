"""The report as one page that needs nothing else."""

from collections.abc import Mapping, Sequence
from importlib.resources import files

from graphact.experiments.report.figures.charts import Figure
from graphact.experiments.report.figures.svg import JOINS, dark_rules
from graphact.experiments.report.markup import Markup, element, markup, unbroken
from graphact.experiments.report.measures import MEASURES
from graphact.experiments.report.paper import CITATION
from graphact.experiments.report.sections.section import Block, Section
from graphact.experiments.report.tables.html import to_html
from graphact.experiments.report.words import capitalized, uncapitalized

TITLE = "Graph-adaptive activation functions: results"
LEAD = (
    "What happens when the nonlinearity of a graph neural network sees the graph? The four experiments of the paper, "
    "run again with graphact, beside the published numbers and beside baselines that need no network."
)
READING = (
    "Numbers are mean ± sample standard deviation over the replicas: graphs, splits, nodes and realizations of link "
    "losses. A single run has no deviation. Runs that did not end in a finite number are counted and left out."
)
NO_COMMAND = "The command was not recorded."


def page(
    sections: Sequence[Section],
    drawings: Mapping[str, str],
    provenance: Sequence[tuple[str, str]],
    command: str | None,
) -> str:
    """The HTML of a report.

    Args:
        sections: what is reported.
        drawings: the SVG of every figure, by its name.
        provenance: where the results come from.
        command: what made them.
    """
    content = element(
        "main",
        element(
            "header", element("h1", TITLE), element("p", LEAD, class_="lead"), summary(sections), contents(sections)
        ),
        *(section_html(section, drawings) for section in sections),
        origin(provenance, command),
    )
    style = files("graphact.experiments.report.page").joinpath("page.css").read_text(encoding="utf-8")
    rules = Markup(f"{style}\nfigure svg * {{ {JOINS} }}\n{dark_rules()}\n")
    head = element(
        "head",
        Markup('<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        Markup('<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'),
        element("title", TITLE),
        Markup("\n"),
        element("style", rules),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', content), lang='en')}\n"


def summary(sections: Sequence[Section]) -> Markup:
    """The results in a few sentences."""
    items = []
    for section in sections:
        for block in section.blocks:
            lines = (
                element("li", element("b", unbroken(f"{where}: ")), unbroken(sentence))
                for where, sentence in block.headlines
            )
            items.append(
                element("dt", section.title, " ", element("span", described(section, block), class_="setting"))
            )
            items.append(element("dd", element("ul", *lines)))
    return element(
        "section",
        element("h2", "In short"),
        element("dl", *items),
        element("p", READING, class_="note"),
        class_="summary",
    )


def contents(sections: Sequence[Section]) -> Markup:
    """Links to the sections, where there are several."""
    if len(sections) < 2:
        return Markup()
    links = (element("li", element("a", section.title, href=f"#{section.experiment}")) for section in sections)
    return element("nav", element("ul", *links), aria_label="Experiments")


def setting_of(block: Block) -> str:
    """Protocol and preset in words."""
    return f"protocol “{block.protocol}”, preset “{block.preset}”"


def described(section: Section, block: Block) -> str:
    """What is measured, in which setting, and how much of it is done where that is not all."""
    measured = uncapitalized(MEASURES[section.experiment].axis)
    share = "" if block.progress.percent == 100 else f", partial ({block.progress.percent} % of what is shown)"
    return f"{measured}, {setting_of(block)}{share}"


def section_html(section: Section, drawings: Mapping[str, str]) -> Markup:
    """One experiment."""
    return element(
        "section",
        element("h2", section.title),
        *(element("p", paragraph) for paragraph in section.explanation),
        *(block_html(block, drawings) for block in section.blocks),
        id=section.experiment,
    )


def block_html(block: Block, drawings: Mapping[str, str]) -> Markup:
    """One preset and protocol."""
    figures = [figure_html(figure, drawings[figure.name]) for figure in block.figures]
    more = [to_html(table) for table in block.more_tables]
    facts = facts_html(block.facts)
    return element(
        "article",
        element("h3", capitalized(setting_of(block))),
        element("p", block.progress.sentence, class_="progress"),
        element("div", *figures, class_="figures" if len(block.figures) > 1 else "figures single") if figures else "",
        *(to_html(table) for table in block.tables),
        element("details", element("summary", f"More tables ({len(more)})"), *more) if more else Markup(),
        element("details", element("summary", "Settings"), facts),
    )


def figure_html(figure: Figure, drawing: str) -> Markup:
    """A figure with its caption."""
    caption = element("figcaption", element("strong", unbroken(f"{figure.title}.")), f" {figure.caption}")
    return element("figure", Markup(drawing), caption)


def facts_html(facts: Sequence[tuple[str, str]]) -> Markup:
    """Names and values."""
    return element("dl", *(markup(element("dt", name), element("dd", value)) for name, value in facts), class_="facts")


def origin(provenance: Sequence[tuple[str, str]], command: str | None) -> Markup:
    """How the report was made, and what it is compared with."""
    made = element("pre", element("code", command), tabindex="0") if command else element("p", NO_COMMAND)
    return element(
        "footer",
        element("h2", "How this was made"),
        made,
        facts_html(provenance),
        element("p", "The paper: ", CITATION, ". Its Tables 1 and 2 are the source of the numbers marked “paper”."),
    )
