"""Legends below a figure: the networks in columns, then the references, one to a line."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphact.experiments.report.figures.canvas import WIDTH, drawable
from graphact.experiments.report.figures.charts import Reference
from graphact.experiments.report.figures.scale import Scale
from graphact.experiments.report.measures import Measure
from graphact.experiments.report.methods import GREY
from graphact.experiments.report.summary import number

ENTRY = 0.141  # inches from line to line of the networks
LINE = 0.155  # and of the references
GAP = 0.06  # around the references
LETTER = 0.053  # inches to a letter
HANDLE = 0.46  # inches of a line and the space around it
LETTERS = 66  # letters to a line of a reference
MARGIN, INDENT = 0.06, 0.2
SHORT = 12  # letters that are short enough to stand at a line in the figure


@dataclass(frozen=True)
class ReferenceText:
    """A reference in words: what stands at its line in the figure, and what the legend says of it."""

    tag: str
    lines: tuple[str, ...]


def reference_texts(references: Sequence[Reference], measure: Measure, scale: Scale) -> list[ReferenceText]:
    """The references in words: name, value, and whether the scale leaves them out."""
    if len(references) == 1 and len(references[0].label) <= SHORT and scale.position(references[0]) == "on":
        return [ReferenceText(drawable(references[0].label), ())]
    texts = []
    for position, reference in enumerate(references):
        means = [point.mean for point in reference.points]
        value = " to ".join(dict.fromkeys(number(end, measure.digits) for end in (min(means), max(means))))
        where = scale.position(reference)
        outside = "" if where == "on" else f", {where} the scale"
        text = drawable(f"{reference.label} ({value}{outside})")
        texts.append(ReferenceText(letter(position), tuple(textwrap.wrap(text, LETTERS))))
    return texts


def letter(position: int) -> str:
    """What stands for a reference: a, b, ..., z, a2, b2, ..."""
    turn = position // 26
    return chr(ord("a") + position % 26) + (str(turn + 1) if turn else "")


def columns_for(labels: Sequence[str]) -> int:
    """How many entries fit beside each other."""
    widest = HANDLE + LETTER * max(len(label) for label in labels)
    return max(1, min(len(labels), int(WIDTH / widest)))


def legend_height(labels: Sequence[str], texts: Sequence[ReferenceText]) -> float:
    """Inches that both legends need."""
    references = sum(len(text.lines) for text in texts)
    return entries_height(labels) + LINE * references + (2 * GAP if references else 0)


def entries_height(labels: Sequence[str]) -> float:
    """Inches that the entries of the networks need."""
    return ENTRY * math.ceil(len(labels) / columns_for(labels)) + 0.08


def add_legends(sheet: Any, handles: Sequence[Any], labels: Sequence[str], texts: Sequence[ReferenceText]) -> None:
    """Reserve room at the bottom of a sheet and write the legends into it."""
    height = sheet.get_figheight()
    room = legend_height(labels, texts)
    sheet.get_layout_engine().set(rect=(0, room / height, 1, 1 - room / height))
    legend = sheet.legend(
        handles=list(handles),
        labels=[drawable(label) for label in labels],
        ncols=columns_for(labels),
        loc="upper left",
        bbox_to_anchor=(0, room / height),
        borderaxespad=0,
        borderpad=0.3,
        columnspacing=1.2,
        handlelength=2.6,
        handletextpad=0.6,
        labelspacing=0.35,
    )
    legend.set_in_layout(False)
    below = room - entries_height(labels)
    style: Any = {"fontsize": 7.5, "va": "baseline", "in_layout": False}
    for text in texts:
        for position, line in enumerate(text.lines):
            below -= LINE
            if position == 0:
                sheet.text(MARGIN / WIDTH, below / height, text.tag, color=GREY, weight="bold", **style)
            sheet.text((MARGIN + INDENT) / WIDTH, below / height, line, **style)
