"""The report of the experiment: one message, one figure, one table, in a terminal and on a page."""

import base64
import html
import textwrap
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from graphact.storage import write_atomically
from graphact_lab.experiments.rounds.experiment import (
    BANKS,
    BASELINES,
    FULL,
    LINEAR,
    LINEAR_UNIT,
    NEAREST,
    NEAREST_NOISY,
    NOISE,
    PARTS,
    POINTWISE,
    QUICK,
    WITHOUT_SHIFT,
    orders_of,
)
from graphact_lab.figures import FAINT, GREY, INK, house_style, new_sheet, settle, to_png
from graphact_lab.statistics import MIN_UNITS, Estimate, estimate
from graphact_lab.store import Row
from graphact_lab.style import STYLES, Variant

NAMES = {
    "bank-max": "bank, max",
    "bank-max-min": "bank, max + min",
    "bank-median": "bank, median",
    "bank-mean": "bank, mean (linear)",
    "bank-pna": "bank, 4 functions",
    "sage-max": "SAGE max",
    "pna": "PNA",
    "gatv2": "GATv2",
    "max-ga-unshifted": "Max G.A. from k = 0",
    "mean-ga": "Mean G.A. (linear)",
    NEAREST: "nearest neighbour (cosine)",
    NEAREST_NOISY: f"same, {100 * NOISE:g} % noise",
    LINEAR: "least squares",
    LINEAR_UNIT: "same, norm 1",
}
COLUMNS = {"random": "seen", "unseen": "unseen"}
SOURCES = {"random": "seen sources", "unseen": "unseen sources"}
BANK, RIVAL, OTHER = "#0072b2", INK, GREY  # colours of banks, pointwise networks, all others
CHANCE = 25.0
LAYERS_NOTE = "Layers: in brackets the order of their filters; a filter of order 0 shifts nothing."


class RoundsResults:
    """Accuracies by method, rounds and division of the samples."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        self.rounds = sorted({row["rounds"] for row in rows if row["kind"] == "model"})
        self.sources = [part for part in PARTS if any(row["sources"] == part for row in rows)]
        order = {name: rank for rank, name in enumerate(dict.fromkeys((*POINTWISE, *STYLES, *NAMES)))}
        methods = {row["method"] for row in rows if row["kind"] == "model"}
        self.methods = sorted(
            methods,
            key=lambda name: (name in BANKS, name in WITHOUT_SHIFT, order.get(name, len(order)), name),
        )

    def by_graph(self, method: str, rounds: int, sources: str, key: str = "value") -> dict[Any, float]:
        """Return the mean of each graph, by seed and number; empty where nothing was run."""
        wanted = (method, rounds, sources)
        found: dict[Any, list[float]] = {}
        for row in self.rows:
            if (row["method"], row["rounds"], row["sources"]) == wanted:
                found.setdefault((row["seed"], row["graph"]), []).append(row[key])
        return {graph: fmean(values) for graph, values in found.items()}

    def mean(self, method: str, rounds: int, sources: str) -> float | None:
        values = self.by_graph(method, rounds, sources)
        return fmean(values.values()) if values else None

    @cached_property
    def rivals(self) -> dict[tuple[int, str], str]:
        """The pointwise network that validates best, by rounds and sources; of equal ones that with fewer parameters.

        What is still equal is told apart by the name.
        """
        best = {}
        for place in product(self.rounds, self.sources):
            scores = {one: self.by_graph(one, *place, "validation") for one in POINTWISE}
            ranks = {one: (-fmean(own.values()), self.parameters[one], one) for one, own in scores.items() if own}
            if ranks:
                best[place] = min(ranks, key=ranks.__getitem__)
        return best

    @cached_property
    def parameters(self) -> dict[str, int]:
        """The number of trained numbers of each method."""
        return {row["method"]: row.get("parameters", 0) for row in self.rows}

    def gain(self, method: str, rounds: int, sources: str) -> Estimate | None:
        """Return the difference from the pointwise network that validates best, paired over graphs."""
        rival = self.rivals.get((rounds, sources))
        ours = self.by_graph(method, rounds, sources)
        theirs = {} if rival is None or rival == method else self.by_graph(rival, rounds, sources)
        shared = sorted(ours.keys() & theirs.keys())
        return estimate([ours[graph] - theirs[graph] for graph in shared]) if len(shared) >= MIN_UNITS else None

    @property
    def best_bank(self) -> str | None:
        """The bank that validates best, over everything that was run."""
        scores = {}
        for method in self.methods:
            if method in BANKS:
                values = [row["validation"] for row in self.rows if row["method"] == method]
                scores[method] = fmean(values)
        return max(scores, key=scores.__getitem__) if scores else None


def label(method: str) -> str:
    """Return the name of a method in a table."""
    return NAMES.get(method) or Variant(method, None).label


def message(results: RoundsResults) -> str:
    """Return the conclusion, a sentence for each division of the samples, computed from the rows."""
    bank = results.best_bank
    if bank is None or not results.rivals:
        return "No adaptive filter bank was run beside a pointwise network, so there is nothing to conclude."
    functions = label(bank).removeprefix("bank, ")
    subject = f"After {results.rounds[-1]} rounds of messages, the adaptive filter bank ({functions})"
    said: list[str] = []
    for sources in results.sources:
        rounds = results.rounds[-1]
        gain, rival = results.gain(bank, rounds, sources), results.rivals.get((rounds, sources))
        mean = results.mean(bank, rounds, sources)
        if gain is None or rival is None or mean is None:
            continue
        more = "more" if gain.mean >= 0 else "fewer"
        said.append(
            f"{'It' if said else subject} is right in {mean:.0f} % with {SOURCES[sources]}, {abs(gain.mean):.1f} ± "
            f"{gain.margin:.1f} points {more} than the best pointwise network ({label(rival)})"
            f"{'.' if gain.is_certain else '; the unadjusted 95 % interval contains 0.'}"
        )
    if not said:
        return f"Fewer than {MIN_UNITS} graphs were run, too few for an interval."
    return " ".join(said)


def lines_of(results: RoundsResults) -> list[list[str]]:
    """Return header and lines of the table: layers with the order of filters, accuracy, the gain with its interval."""
    columns = [(rounds, sources) for sources in results.sources for rounds in results.rounds]
    header = ["network", "layers"]
    for rounds, sources in columns:
        header += [f"{COLUMNS[sources]}, {rounds} rounds" if len(results.rounds) > 1 else COLUMNS[sources], "gain"]
    lines = [header]
    for method in results.methods:
        layers = [orders for rounds in results.rounds if (orders := orders_of(method, rounds))]
        line = [label(method), ", ".join(f"{len(orders)} ({orders[0]})" for orders in layers)]
        for place in columns:
            mean, gain = results.mean(method, *place), results.gain(method, *place)
            is_rival = results.rivals.get(place) == method
            line.append("" if mean is None else f"{mean:.1f} %")
            line.append("reference" if is_rival else "" if gain is None else f"{gain.mean:+.1f} ± {gain.margin:.1f}")
        lines.append(line)
    for baseline in BASELINES:
        line = [NAMES[baseline], ""]
        for _, sources in columns:
            mean = results.mean(baseline, 0, sources)
            line += ["" if mean is None else f"{mean:.1f} %", ""]
        if any(line[1:]):
            lines.append(line)
    return lines


def terminal_table(rows: Sequence[Row]) -> str:
    """Return the table in aligned columns, and the conclusion."""
    results = RoundsResults(rows)
    lines = lines_of(results)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]
    text.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    graphs = len({(row["seed"], row["graph"]) for row in rows})
    legend = (
        f"Gain: points over the pointwise network that validates best, with the 95 % interval over {graphs} graphs."
    )
    if any(line[0] == NAMES[NEAREST] for line in lines):
        legend += " The nearest neighbour and least squares read all nodes at once, which no network may."
    legend += f" A guess is right in {CHANCE:.0f} %. {LAYERS_NOTE}{training_note(rows)}"
    return "\n".join([*text, "", *wrapped(legend), "", *wrapped(message(results))])


def wrapped(text: str) -> list[str]:
    """Return lines of at most 80 characters, none of which begins with a percent sign."""
    return [line.replace("\xa0", " ") for line in textwrap.wrap(text.replace(" %", "\xa0%"), 80)]


def training_note(rows: Sequence[Row]) -> str:
    """Return a sentence on the short training of the demo; "" for other presets."""
    is_short = rows[0].get("preset") == QUICK.preset
    return (
        f" Training is short: {QUICK.epochs} epochs instead of the {FULL.epochs} of --preset full." if is_short else ""
    )


def write_page(rows: Sequence[Row], folder: Path, commands: Sequence[str]) -> Path:
    """Write ``report.html`` and ``figures/``, one for each division of the samples; return the path of the page."""
    results = RoundsResults(rows)
    figures = {}
    with house_style():
        for sources in results.sources:
            sheet = draw(results, sources)
            settle(sheet)
            figures[sources] = to_png(sheet)
    header, *lines = lines_of(results)
    replicas = {(row["seed"], row["graph"], row["split"], row["node"]) for row in rows}
    graphs, settings = len({(row["seed"], row["graph"]) for row in rows}), rows[0]["settings"]
    first = rows[0]
    page = PAGE.format(
        message=html.escape(message(results)),
        images="\n".join(
            f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}" '
            f'alt="{SOURCES[sources].capitalize()}: right answers of each network, as in the table below">'
            for sources, png in figures.items()
        ),
        header="".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in header),
        body="\n".join(
            "<tr>"
            + f'<th scope="row">{html.escape(line[0])}</th>'
            + "".join(f"<td>{html.escape(c)}</td>" for c in line[1:])
            + "</tr>"
            for line in lines
        ),
        networks=len(replicas),
        graphs=graphs,
        epochs=settings["epochs"],
        layers_note=LAYERS_NOTE,
        training_note=training_note(rows),
        width=settings["width"],
        made=html.escape(f"graphact {first['graphact']}, torch {first['torch']}, {first['device']}"),
        command=html.escape("\n".join(commands)),
    )
    for sources, png in figures.items():
        write_atomically(folder / "figures" / f"{COLUMNS[sources]}.png", png)
    write_atomically(folder / "report.html", page.encode())
    return folder / "report.html"


def draw(results: RoundsResults, sources: str) -> Any:
    """Draw accuracy over rounds where several were run, else a dot for each network with the interval of its gain."""
    several = len(results.rounds) > 1
    count = len(results.methods)
    sheet = new_sheet(3.2 if several else 0.9 + 0.24 * count, 3.5)
    axes = sheet.subplots()
    axes.set_title(SOURCES[sources].capitalize(), loc="left", weight="bold", color=INK)
    (draw_lines if several else draw_dots)(axes, results, sources)
    return sheet


def color_of(method: str) -> str:
    """Return the colour of a method: banks stand out."""
    return BANK if method in BANKS else RIVAL if method in POINTWISE else OTHER


def draw_dots(axes: Any, results: RoundsResults, sources: str) -> None:
    """Draw a row for each network; bars are the intervals of gains over the best pointwise network."""
    rounds = results.rounds[0]
    for row, method in enumerate(results.methods):
        mean, gain = results.mean(method, rounds, sources), results.gain(method, rounds, sources)
        if mean is None:
            continue
        axes.errorbar(mean, row, xerr=gain.margin if gain else None, fmt="o", markersize=4.5, color=color_of(method))
        axes.annotate(f"{mean:.0f}", (mean, row), (0, 5), textcoords="offset points", ha="center", fontsize=7)
    rival = results.rivals.get((rounds, sources))
    if rival is not None:
        axes.axvline(results.mean(rival, rounds, sources), color=FAINT, linewidth=1, zorder=0)
    axes.set_yticks(range(len(results.methods)), [label(method) for method in results.methods])
    axes.set_ylim(len(results.methods) - 0.5, -0.8)
    axes.set_xlabel("Right answers (%)")


def draw_lines(axes: Any, results: RoundsResults, sources: str) -> None:
    """Draw accuracy over rounds: the best pointwise network, the banks, and others in grey, named at their ends."""
    for method in results.methods:
        points = [(rounds, mean) for rounds in results.rounds if (mean := results.mean(method, rounds, sources))]
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, linewidth=1.2, color=color_of(method))
        axes.annotate(label(method), points[-1], (4, 0), textcoords="offset points", va="center", fontsize=6.5)
    axes.set_xlabel("Rounds of messages")
    axes.set_ylabel("Right answers (%)")
    axes.set_xticks(results.rounds)
    axes.margins(x=0.25)
    axes.grid(axis="y")


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<title>Source localization at equal rounds</title>
<style>
body {{ margin: 0 auto; max-width: 52rem; padding: 1.5rem 1rem; color: #1f2328; font: 1rem/1.6 system-ui, sans-serif; }}
h1 {{ font-size: 1.4rem; margin: 0 0 0.5rem; }}
.message {{ font-size: 1.125rem; border-left: 4px solid #0072b2; padding-left: 0.9rem; }}
.figures {{ display: flex; flex-wrap: wrap; gap: 0.5rem; }}
.figures img {{ flex: 1 1 20rem; min-width: 0; max-width: 30rem; }}
.scroll {{ overflow-x: auto; }}
pre {{ white-space: pre-wrap; }}
table {{ border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.3rem 0.6rem; text-align: right; vertical-align: bottom; border-bottom: 1px solid #d5d9de; }}
td {{ white-space: nowrap; }}
th:first-child {{ text-align: left; }}
@media (max-width: 30rem) {{ table {{ font-size: 0.8125rem; }} th, td {{ padding: 0.3rem 0.15rem; }} }}
.note {{ color: #59636e; font-size: 0.875rem; }}
</style></head><body><main>
<h1>In which community did it start?</h1>
<p class="message">{message}</p>
<div class="figures">
{images}
</div>
<p>A diffusion starts at one node of a graph with four communities. After up to 29 steps, one node has to name the
community of the source. All networks exchange messages with their neighbours equally often. A guess is right once in
four. If samples are divided at random, as in the paper, a source of the test was seen in training at neighbouring
times (seen sources). Unseen sources do not occur in training.</p>
<div class="scroll" role="region" tabindex="0" aria-label="table"><table>
<thead><tr>{header}</tr></thead>
<tbody>
{body}
</tbody></table></div>
<p class="note">Gain: points over the pointwise network that validates best, ± half of the 95 % interval, paired
over {graphs} graphs; bars in the figure are these intervals. The nearest neighbour and least squares read the values of
all nodes, which no network sees. Each value is the mean of {networks} networks with {width} features, trained for
{epochs} epochs. {layers_note}{training_note} {made}.</p>
<pre tabindex="0"><code>{command}</code></pre>
</main></body></html>
"""
