"""The report on link scheduling: tables and figures of learned keys beside the classical rule at equal rounds."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from graphact.storage import write_atomically
from graphact_lab.experiments.scheduling.experiment import METHODS, NARROW
from graphact_lab.figures import GREY, INK, house_style, new_sheet, to_png
from graphact_lab.statistics import Estimate, choose, holm
from graphact_lab.store import Row
from graphact_lab.style import markdown_table

RULE, CENTRAL = "w / (1 + d)", "centralised greedy by w / (1 + d), no messages"
LABELS = {
    "bank": "adaptive bank (max, min)",
    "bank-max": "adaptive bank (max)",
    "pointwise": "pointwise",
    "topology": "GCN + LGS (graph alone)",
    "sage-max": "SAGE-max",
    "pna": "PNA",
    "gatv2": "GATv2",
}
COLORS = dict(zip(METHODS, ("#0072b2", "#cc79a7", "#009e73", "#d55e00", "#e69f00", GREY, "#56b4e9"), strict=True))
MARKERS = dict(zip(METHODS, "^oXsDPv", strict=True))
TITLES = {"random": "Random", "attached": "Barabási-Albert", "geometric": "Geometric", "flows": "Flows"}
LIGHT, OVERLOAD = 0.7, 1.2  # loads at which delay and throughput are told
INTRODUCTION = """\
Load is what the winners of a slot carry over what the centralised greedy by utility carries. A rule of L rounds stands
beside keys of at least L rounds. Intervals are 95 %, over graphs and seeds as crossed factors; p is Holm's over the
table. Where rounds can be divided between layers and iterations of the greedy rule, validation graphs have chosen."""
IN_TIME = """\
Each scheduler stands with the rounds and layers that are best on this traffic itself, of {counts} tried: the more were
tried, the more the choice flatters."""


def crossed(values: Sequence[Sequence[float]]) -> Estimate:
    """The mean of values by seed and graph, with the variances of both; a single seed is no source of variance."""
    by_graph = [fmean(column) for column in zip(*values, strict=True)]
    variance = stdev(by_graph) ** 2 / len(by_graph) if len(by_graph) > 1 else math.inf
    degrees = len(by_graph) - 1
    if len(values) > 1:
        variance += stdev([fmean(row) for row in values]) ** 2 / len(values)
        degrees = min(degrees, len(values) - 1)
    return Estimate(fmean(by_graph), math.sqrt(variance), degrees, degrees + 1)


def best_jobs(rows: Sequence[Row], setting: str) -> dict[tuple[str, int], list[Row]]:
    """The rows of each method and number of rounds, of the split between layers and iterations that validates best."""
    found = dict[tuple[str, int], dict[Any, list[Row]]]()
    for row in choose(rows, kind="model", setting=setting):
        jobs = found.setdefault((row["method"], row["rounds"]), {})
        jobs.setdefault((row["layers"], row["iterations"]), []).append(dict(row))
    return {
        place: max(jobs.values(), key=lambda own: fmean(row["validation"] for row in own))
        for place, jobs in found.items()
    }


def ratios(rows: Sequence[Row], condition: Mapping[str, Any]) -> list[list[float]]:
    """Ratios by seed and graph under a condition."""
    return [row["ratios"] for row in choose(rows, condition=dict(condition))]


def rule_at(rows: Sequence[Row], condition: Mapping[str, Any], rounds: int) -> list[float]:
    """The ratios of the classical rule in as many rounds as it can use."""
    own = choose(rows, kind="baseline", method=RULE, condition=dict(condition))
    return list(max((row for row in own if row["rounds"] <= rounds), key=lambda row: row["rounds"])["ratios"])


def load_tables(rows: Sequence[Row], setting: str, condition: Mapping[str, Any]) -> list[str]:
    """Loads under a condition, and their differences from the rule at equal rounds."""
    jobs, lines, gaps = best_jobs(rows, setting), list[Sequence[str]](), dict[tuple[str, int], Estimate]()
    budgets = sorted({rounds for _, rounds in jobs})
    lines.append(("rule w / (1 + d)", *(f"{fmean(rule_at(rows, condition, rounds)):.3f}" for rounds in budgets)))
    for method in dict.fromkeys(method for method, _ in jobs):
        cells = [LABELS[method]]
        for rounds in budgets:
            found = ratios(jobs.get((method, rounds), []), condition)
            cells.append(f"{crossed(found).mean:.3f}" if found else "")
            if found:
                rule = rule_at(rows, condition, rounds)
                differences = [[one - other for one, other in zip(own, rule, strict=True)] for own in found]
                gaps[method, rounds] = crossed(differences)
        lines.append(cells)
    adjusted = dict(zip(gaps, holm([gap.p_unlike() for gap in gaps.values()]), strict=True))
    compared = [
        (LABELS[method], *(show(gaps.get((method, n)), adjusted.get((method, n), 1.0)) for n in budgets))
        for method in dict.fromkeys(method for method, _ in gaps)
    ]
    header = [f"{rounds} round{'s'[: rounds > 1]}" for rounds in budgets]
    simple = [
        f"{row['method']} {row['value']:.3f}"
        for row in choose(rows, kind="baseline", condition=dict(condition))
        if row["rounds"] in (0, None)
    ]
    title = ", ".join(f"{name} {value}" for name, value in condition.items())
    table, differences_table = (markdown_table(("keys", *header), part) for part in (lines, compared))
    return [f"### {title}", table, ", ".join(simple) + ".", f"Minus the rule in as many rounds:\n\n{differences_table}"]


def show(gap: Estimate | None, p: float) -> str:
    """A difference in points of load, with its interval; bold where it is significant."""
    if gap is None:
        return ""
    text = f"{100 * gap.mean:+.1f} ± {100 * gap.margin:.1f}"
    return f"**{text}**" if p < 0.05 else text


def schedulers(rows: Sequence[Row]) -> dict[str, dict[int, list[Row]]]:
    """The outcomes in time of each kind of scheduler, by contention, at its own best number of rounds."""
    found = dict[str, dict[int, dict[Any, list[Row]]]]()
    for row in choose(rows, kind="slots"):
        split = row["rounds"], row.get("layers")
        found.setdefault(label_in_time(row), {}).setdefault(row["contention"], {}).setdefault(split, []).append(
            dict(row)
        )
    return {
        label: {contention: max(jobs.values(), key=worth) for contention, jobs in own.items()}
        for label, own in found.items()
    }


def label_in_time(row: Row) -> str:
    """Return the name of the scheduler of a row."""
    return LABELS.get(row["method"]) or f"rule {row['method']}".replace(f"rule {CENTRAL}", "greedy, no messages")


def tried_in_time(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many pairs of rounds and layers of each scheduler the best one is chosen from."""
    found = dict[str, set[Any]]()
    for row in choose(rows, kind="slots"):
        found.setdefault(label_in_time(row), set()).add((row["rounds"], row.get("layers")))
    return {label: len(splits) for label, splits in found.items()}


def worth(rows: Sequence[Row]) -> tuple[float, float]:
    """The largest load whose backlog does not grow with certainty, and what is carried beyond all loads."""
    stable = max((row["load"] for row in rows if row["slope"] - row["margin"] <= 0), default=0.0)
    return stable, OVERLOAD * value_at(rows, OVERLOAD, "throughput")


def value_at(rows: Sequence[Row], load: float, name: str) -> float:
    """A value at the load that is nearest."""
    return float(min(rows, key=lambda row: abs(row["load"] - load))[name])


def time_table(found: Mapping[str, Mapping[int, Sequence[Row]]]) -> str:
    """A line for each contention and scheduler."""
    lines = []
    for contention in sorted({contention for own in found.values() for contention in own}):
        for label, own in found.items():
            stable, carried = worth(own[contention])
            rounds = own[contention][0]["rounds"]
            delay = value_at(own[contention], LIGHT, "delay")
            cells = ("none" if rounds is None else str(rounds), f"{stable:.2f}", f"{carried:.3f}", f"{delay:.1f}")
            lines.append((f"{label}, c = {contention}", *cells))
    header = ("scheduler", "rounds", "largest stable load", f"carried at {OVERLOAD:g}", f"delay at {LIGHT:g} (slots)")
    return markdown_table(header, lines)


def draw_loads(rows: Sequence[Row], setting: str) -> Any:
    """Load over rounds, a panel for each kind of graphs; the classical rule in black."""
    jobs = best_jobs(rows, setting)
    kinds = [kind for kind in TITLES if choose(rows, kind="baseline", condition={"graphs": kind})]
    sheet = new_sheet(5.2, 6.4)
    panels = sheet.subplots(2, 2, sharex=True).flatten()
    for axes, kind in zip(panels, kinds, strict=False):
        condition = {"graphs": kind}
        rule = choose(rows, kind="baseline", method=RULE, condition=condition)
        points = sorted((row["rounds"], row["value"]) for row in rule)
        axes.plot(*zip(*points, strict=True), color=INK, marker="o", drawstyle="steps-post", label=f"rule {RULE}")
        for method in dict.fromkeys(method for method, _ in jobs):
            found = sorted((n, crossed(ratios(own, condition))) for (name, n), own in jobs.items() if name == method)
            rounds, means = [n for n, _ in found], [one.mean for _, one in found]
            margins = [one.margin if math.isfinite(one.margin) else 0.0 for _, one in found]
            look: dict[str, Any] = {"color": COLORS[method], "marker": MARKERS[method], "linewidth": 1.1}
            axes.errorbar(rounds, means, margins, **look, markersize=4, label=LABELS[method])
        axes.set(title=TITLES[kind], xlabel="Rounds", ylabel="Load over the greedy's")
        axes.grid(axis="y")
    sheet.legend(*panels[0].get_legend_handles_labels(), ncols=3, loc="outside upper center")
    return sheet


def draw_time(found: Mapping[str, Mapping[int, Sequence[Row]]]) -> Any:
    """Draw the load that each scheduler carries in overload, over the messages that follow each other in a round."""
    sheet = new_sheet(3.2, 5.0)
    axes = sheet.subplots()
    colors = {LABELS[method]: COLORS[method] for method in METHODS} | {f"rule {RULE}": INK}
    for label, own in found.items():
        contentions = sorted(own)
        carried = [worth(own[contention])[1] for contention in contentions]
        dashed = label not in colors
        axes.plot(
            range(len(contentions)), carried, "--o" if dashed else "-o", color=colors.get(label, GREY), label=label
        )
        axes.set_xticks(range(len(contentions)), [str(contention) for contention in contentions])
    axes.set(xlabel="Messages that follow each other in a round (c)", ylabel=f"Carried at load {OVERLOAD:g}")
    axes.grid(axis="y")
    sheet.legend(*axes.get_legend_handles_labels(), ncols=2, loc="outside upper center")
    return sheet


def write_page(rows: Sequence[Row], folder: Path, commands: Sequence[str]) -> Path:
    """Write ``report.md`` and the figures; return the path of the page."""
    in_time = schedulers(rows)
    settings = list(dict.fromkeys(row["setting"] for row in choose(rows, kind="model")))
    conditions = [dict(pairs) for pairs in dict.fromkeys(tuple(row["condition"].items()) for row in rows
                  if row["kind"] == "baseline")]  # fmt: skip
    parts = ["# Link scheduling", INTRODUCTION]
    with house_style():
        figures = {f"loads-{setting.replace(' ', '-')}": draw_loads(rows, setting) for setting in settings}
        figures["time"] = draw_time(in_time)
        for name, sheet in figures.items():
            write_atomically(folder / "figures" / f"{name}.png", to_png(sheet))
    for setting in sorted(settings, key=lambda name: name == NARROW):
        title = f"{setting.capitalize()}{', trained with queues' if setting == NARROW else ''}"
        parts += [f"## {title}", f"![Load by rounds](figures/loads-{setting.replace(' ', '-')}.png)"]
        parts += [text for condition in conditions for text in load_tables(rows, setting, condition)]
    tried = tried_in_time(rows).items()
    counts = ", ".join(f"{label} {count}" for label, count in tried)
    parts += [
        "## In time",
        IN_TIME.format(counts=counts),
        "![Carried in overload](figures/time.png)",
        time_table(in_time),
    ]
    parts += ["## How this was made", "```\n" + "\n".join(commands) + "\n```"]
    write_atomically(folder / "report.md", ("\n\n".join(parts) + "\n").encode())
    return folder / "report.md"
