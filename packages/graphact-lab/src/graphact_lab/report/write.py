"""From rows to the files of a report, and to a table for the terminal."""

from collections import namedtuple
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from graphact.storage import write_atomically
from graphact_lab.descriptions import BENCHMARKS, EXPERIMENTS, Experiment, find_experiment
from graphact_lab.report.content import file_name
from graphact_lab.report.rows import gather, read_rows
from graphact_lab.report.sentences import caveat, departures, explanation_of, facts_of, progress_over, provenance
from graphact_lab.report.tables import SIGNS, to_csv, to_text, uncapitalized
from graphact_lab.style import JOINS, dark_rules

# One preset and protocol of an experiment: what is shown, how much of it has been run, a warning, and its settings
Block = namedtuple("Block", "preset protocol content progress caveat facts")


def sections_of(runs: pd.DataFrame) -> dict[str, tuple[Experiment, list[Block]]]:
    """The experiments in the paper's order, each with its blocks, the paper's preset and protocol first."""
    sections: dict[str, tuple[Experiment, list[Block]]] = {
        name: (find_experiment(name), []) for name in (*EXPERIMENTS, *BENCHMARKS)
    }
    keys = ["experiment", "preset", "protocol"]
    own_runs, own_cells = (dict(list(frame.groupby(keys))) for frame in (runs, gather(runs)))
    for key in sorted(own_cells, key=lambda names: [(name != "paper", name) for name in names]):
        (_, preset, protocol), (experiment, blocks) = key, sections[key[0]]
        changes = departures(own_runs[key], experiment)
        beside = {} if experiment.published is None else {"paper": {} if changes else experiment.published}
        content = experiment.content(own_cells[key], file_name(*key), experiment.measure, **beside)
        content.tables.sort(key=lambda table: not table.with_runs)  # results first, then learned weights
        progress = progress_over(table for table in (*content.tables, *content.more_tables) if table.with_runs)
        has_signs = any(table.entries.against_paper.notna().any() for table in content.tables)
        warning = caveat(preset, own_runs[key], experiment, changes, has_signs=has_signs)
        blocks.append(Block(preset, protocol, content, progress, warning, facts_of(own_runs[key])))
    return {name: section for name, section in sections.items() if section[1]}


def write_files(rows: Iterable[Mapping[str, Any]], folder: Path, command: str | None) -> Path:
    """Write the report; see :func:`graphact_lab.report.write_report`."""
    from graphact_lab.report.charts import render

    runs = read_rows(rows)
    sections, templates = sections_of(runs), make_templates()
    contents: dict[str, bytes] = {}
    drawings: dict[str, Markup] = {}
    owners: dict[str, Block] = {}
    for block in (block for _, blocks in sections.values() for block in blocks):
        for table in (*block.content.tables, *block.content.more_tables):
            if (other := owners.setdefault(table.name, block)) is not block:
                raise ValueError(
                    "presets and protocols must differ in letters or digits, which name the files, got "
                    f"{(other.preset, other.protocol)} and {(block.preset, block.protocol)}"
                )
            contents[f"tables/{table.name}.md"] = templates.get_template("table.md.j2").render(table=table).encode()
            contents[f"tables/{table.name}.csv"] = to_csv(table).encode()
        for figure in block.content.figures:
            png, svg, inline = render(figure)
            contents[f"figures/{figure.name}.png"], contents[f"figures/{figure.name}.svg"] = png, svg.encode()
            drawings[figure.name] = Markup(inline)
    rules = Markup(f"figure svg * {{ {JOINS} }}\n{dark_rules()}")
    parts = [block.content for _, blocks in sections.values() for block in blocks]
    told = {name: explanation_of(section[0], runs[runs.experiment == name]) for name, section in sections.items()}
    words: dict[str, Any] = {
        "explanations": told,
        "provenance": provenance(runs),
        "command": command,
        "svg_rules": rules,
    }
    words["has_paper"] = any(table.has_paper for part in parts for table in part.tables)
    words["narrow"] = all(len(part.figures) <= 1 for part in parts)
    page = templates.get_template("page.html.j2").render(sections=sections, drawings=drawings, **words)
    for name, content in (contents | {"report.html": page.encode()}).items():
        write_atomically(folder / name, content)
    return folder / "report.html"


def terminal_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The main tables; see :func:`graphact_lab.report.terminal_table`."""
    pairs = [(experiment, block) for experiment, blocks in sections_of(read_rows(rows)).values() for block in blocks]
    return "\n\n".join(
        f"{experiment.title}, protocol {block.protocol}, preset {block.preset}\n"
        + "\n".join(filter(None, [to_text(block.content.tables[0]), block.progress.sentence, block.caveat]))
        for experiment, block in pairs
    )


def make_templates() -> jinja2.Environment:
    """Templates with their filters; whatever is put into HTML is escaped."""
    escape, space = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|"}), "\N{NO-BREAK SPACE}"
    blanks: Any = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader, autoescape = jinja2.PackageLoader("graphact_lab.report"), jinja2.select_autoescape(("html.j2",))
    templates = jinja2.Environment(loader=loader, autoescape=autoescape, undefined=jinja2.StrictUndefined, **blanks)
    templates.globals |= {"signs": SIGNS, "benchmarks": set(BENCHMARKS)}
    templates.filters |= {
        "uncapitalized": uncapitalized,
        "unbroken": lambda text: text.replace(" = ", f"{space}={space}").replace(" ± ", f"{space}±{space}"),
        "markdown": lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").translate(escape),
    }
    return templates
