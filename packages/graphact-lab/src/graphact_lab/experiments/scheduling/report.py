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
MAX_DRAWN = 25.0  # points; intervals of two seeds reach further
LIGHT = 0.7  # the load at which delay is told, or the nearest one
INTRODUCTION = """\
Load is what the winners of a slot carry over what the centralised greedy by utility carries. The first line of a table
is the load of the rule; the others are the points of load of keys beyond it, bold where they are significant. The rule
has at most as many rounds as the keys, in the number that carries most; where messages are lost it may repeat its own,
as often as carries most on validation graphs. Intervals are 95 %, over graphs and seeds as crossed factors; p is Holm's
over the table. Where rounds can be divided between layers and iterations of the greedy rule, validation graphs have
chosen; where messages are lost, a second iteration collides, and all rounds but one go to layers."""
REPEATED_RULE = f"{RULE}, repeated"
IN_TIME = """\
Each scheduler has the rounds and layers that are best on this traffic itself. A choice of more flatters more; numbers
of choices: {counts}."""
Place = tuple[str, int]  # a method and its rounds


def crossed(values: Sequence[Sequence[float]]) -> Estimate:
    """The mean of values by seed and graph, both drawn: their variances add up, with Satterthwaite's degrees."""
    margins = [[fmean(row) for row in values], [fmean(column) for column in zip(*values, strict=True)]]
    parts = [(stdev(means) ** 2 / len(means), len(means) - 1) for means in margins if len(means) > 1]
    variance, weights = sum(part for part, _ in parts), sum(part**2 / own for part, own in parts)
    degrees = variance**2 / weights if weights else max(len(values[0]) - 1, 1)
    return Estimate(fmean(margins[1]), math.sqrt(variance), degrees, len(values[0]))


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
    """The ratios of the classical rule in at most so many rounds, in the number that carries most.

    Where messages are lost and can be repeated, validation graphs have chosen how often each one is sent.
    """
    own = choose(rows, kind="baseline", method=RULE, condition=dict(condition))
    for row in choose(rows, kind="baseline", method=REPEATED_RULE, condition=dict(condition), rounds=rounds):
        return list(row["ratios"])
    return list(max((row for row in own if row["rounds"] <= rounds), key=lambda row: row["value"])["ratios"])


def gap_of(rows: Sequence[Row], own: Sequence[Row], condition: Mapping[str, Any], rounds: int) -> Estimate:
    """Keys of some networks minus the classical rule in as many rounds, paired over graphs."""
    rule = rule_at(rows, condition, rounds)
    return crossed([[one - other for one, other in zip(each, rule, strict=True)] for each in ratios(own, condition)])


def gaps_under(rows: Sequence[Row], setting: str, condition: Mapping[str, Any]) -> dict[Place, tuple[Estimate, float]]:
    """Keys minus the classical rule, with Holm's p over all of them; where messages are lost, of one iteration."""
    kept = [row for row in rows if row.get("iterations") == 1] if "loss" in condition else rows
    gaps = {place: gap_of(rows, own, condition, place[1]) for place, own in best_jobs(kept, setting).items()}
    adjusted = holm([gap.p_unlike() for gap in gaps.values()])
    return {place: (gap, p) for (place, gap), p in zip(gaps.items(), adjusted, strict=True)}


def gap_table(rows: Sequence[Row], setting: str, condition: Mapping[str, Any]) -> list[str]:
    """Loads of the rule under a condition, and differences of keys from it at equal rounds."""
    gaps = gaps_under(rows, setting, condition)
    budgets = sorted({rounds for _, rounds in gaps})
    rule = f"rule {REPEATED_RULE if 'loss' in condition else RULE}"
    lines: list[Sequence[str]] = [(rule, *(f"{fmean(rule_at(rows, condition, rounds)):.3f}" for rounds in budgets))]
    for method in dict.fromkeys(method for method, _ in gaps):
        lines.append((LABELS[method], *(show(*gaps[method, n]) if (method, n) in gaps else "" for n in budgets)))
    simple = [
        f"{row['method']} {row['value']:.3f}"
        for row in choose(rows, kind="baseline", condition=dict(condition))
        if row["rounds"] in (0, None)
    ]
    title = ", ".join(f"{name} {value}" for name, value in condition.items())
    header = ("keys", *(f"{rounds} round{'s'[: rounds > 1]}" for rounds in budgets))
    return [f"### {title}", markdown_table(header, lines), ", ".join(simple) + "."]


def show(gap: Estimate, p: float) -> str:
    """A difference in points of load, with its interval; bold where it is significant."""
    text = f"{100 * gap.mean:+.1f} ± {100 * gap.margin:.1f}"
    return f"**{text}**" if p < 0.05 else text


def jobs_in_time(rows: Sequence[Row]) -> dict[str, dict[int, dict[Any, list[Row]]]]:
    """The outcomes in time of each kind of scheduler, by contention and by rounds and layers."""
    found = dict[str, dict[int, dict[Any, list[Row]]]]()
    for row in choose(rows, kind="slots"):
        rule = "greedy, no messages" if row["method"] == CENTRAL else f"rule {row['method']}"
        own = found.setdefault(LABELS.get(row["method"], rule), {}).setdefault(row["contention"], {})
        own.setdefault((row["rounds"], row.get("layers")), []).append(dict(row))
    return found


def schedulers(rows: Sequence[Row], *, in_overload: bool = False) -> dict[str, dict[int, list[Row]]]:
    """The outcomes in time of each kind of scheduler, by contention, at its own best number of rounds.

    The best has the largest stable load, or carries most in overload.
    """
    return {
        label: {c: max(jobs.values(), key=lambda own: worth(own)[in_overload:]) for c, jobs in own.items()}
        for label, own in jobs_in_time(rows).items()
    }


def tried_in_time(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many pairs of rounds and layers of each scheduler the best one is chosen from."""
    return {label: len(next(iter(own.values()))) for label, own in jobs_in_time(rows).items()}


def worth(rows: Sequence[Row]) -> tuple[float, float]:
    """The largest load whose backlog does not grow with certainty, and what is carried at the largest load of all."""
    stable = max((row["load"] for row in rows if row["slope"] - row["margin"] <= 0), default=0.0)
    overload = max(rows, key=lambda row: row["load"])
    return stable, overload["load"] * overload["throughput"]


def time_table(found: Mapping[str, Mapping[int, Sequence[Row]]]) -> str:
    """A line for each contention and scheduler."""
    loads = loads_of(found)
    light = min(loads, key=lambda load: abs(load - LIGHT))
    lines = []
    for contention in sorted({contention for own in found.values() for contention in own}):
        for label, own in found.items():
            stable, carried = worth(own[contention])
            rounds = own[contention][0]["rounds"]
            delay = next(row["delay"] for row in own[contention] if row["load"] == light)
            cells = ("none" if rounds is None else str(rounds), f"{stable:.2f}", f"{carried:.3f}", f"{delay:.1f}")
            lines.append((f"{label}, c = {contention}", *cells))
    header = ("scheduler", "rounds", "largest stable load", f"carried at {loads[-1]:g}", f"delay at {light:g} (slots)")
    return markdown_table(header, lines)


def loads_of(found: Mapping[str, Mapping[int, Sequence[Row]]]) -> list[float]:
    """The loads that were run, in order."""
    return sorted({row["load"] for own in found.values() for rows in own.values() for row in rows})


def draw_gaps(rows: Sequence[Row], setting: str) -> Any:
    """Points of load beyond the classical rule at equal rounds, a panel for each kind of graphs and share of losses."""
    conditions = {title: {"graphs": kind} for kind, title in TITLES.items()}
    losses = sorted({row["condition"]["loss"] for row in rows if "loss" in row.get("condition", {})})
    conditions |= {f"Random, {100 * loss:g} % lost": {"graphs": "random", "loss": loss} for loss in losses}
    sheet = new_sheet(5.2 + 2.2 * bool(losses), 6.4)
    panels = sheet.subplots(2 + bool(losses), 2, sharex=True).flatten()
    for axes, (title, condition) in zip(panels, conditions.items(), strict=True):
        gaps = gaps_under(rows, setting, condition)
        methods = list(dict.fromkeys(method for method, _ in gaps))
        axes.axhline(0.0, color=INK, linewidth=1.4, label=f"rule {RULE}")
        for place, method in enumerate(methods):
            own = {n: gap for (name, n), (gap, _) in sorted(gaps.items()) if name == method}
            apart = [n + 0.08 * (place - (len(methods) - 1) / 2) for n in own]
            look: dict[str, Any] = {"color": COLORS[method], "marker": MARKERS[method], "linewidth": 1.0}
            means, margins = ([100 * getattr(gap, name) for gap in own.values()] for name in ("mean", "margin"))
            axes.errorbar(apart, means, margins, **look, markersize=4, label=LABELS[method])
        axes.set(title=title, xlabel="Rounds", ylabel="Points of load beyond the rule")
        axes.set_ylim(max(axes.get_ylim()[0], -MAX_DRAWN), min(axes.get_ylim()[1], MAX_DRAWN))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y")
    sheet.legend(*panels[0].get_legend_handles_labels(), ncols=3, loc="outside upper center")
    return sheet


def draw_time(rows: Sequence[Row]) -> Any:
    """Draw the largest stable load, and the load carried in overload, over the messages that follow each other."""
    sheet = new_sheet(3.2, 6.4)
    looks: dict[str, Any] = {
        LABELS[method]: {"color": COLORS[method], "marker": MARKERS[method], "linestyle": "-"} for method in METHODS
    }
    looks |= {f"rule {RULE}": {"color": INK, "marker": "s"}, "rule w": {"color": INK, "marker": "o", "linestyle": "--"}}
    for in_overload, axes in enumerate(sheet.subplots(1, 2)):
        found = schedulers(rows, in_overload=bool(in_overload))
        for place, (label, own) in enumerate(found.items()):
            values = [worth(own[contention])[in_overload] for contention in sorted(own)]
            apart = [n + 0.05 * (place - len(found) / 2) for n in range(len(values))]
            look = looks.get(label, {"color": GREY, "linestyle": ":"})
            axes.plot(apart, values, label=label, **look)
            axes.set_xticks(range(len(values)), [str(contention) for contention in sorted(own)])
        overload = f"Carried at load {loads_of(found)[-1]:g}"
        axes.set(xlabel="Messages in turn in a round (c)", ylabel=overload if in_overload else "Largest stable load")
        axes.grid(axis="y")
    sheet.legend(*axes.get_legend_handles_labels(), ncols=3, loc="outside upper center")
    return sheet


def write_page(rows: Sequence[Row], folder: Path, commands: Sequence[str]) -> Path:
    """Write ``report.md`` and the figures; return the path of the page."""
    in_time = schedulers(rows)
    settings = list(dict.fromkeys(row["setting"] for row in choose(rows, kind="model")))
    conditions = [dict(pairs) for pairs in dict.fromkeys(tuple(row["condition"].items()) for row in rows
                  if row["kind"] == "baseline")]  # fmt: skip
    parts = ["# Link scheduling", INTRODUCTION]
    with house_style():
        figures = {f"loads-{setting.replace(' ', '-')}": draw_gaps(rows, setting) for setting in settings}
        figures["time"] = draw_time(rows)
        for name, sheet in figures.items():
            write_atomically(folder / "figures" / f"{name}.png", to_png(sheet))
    for setting in sorted(settings, key=lambda name: name == NARROW):
        title = f"{setting.capitalize()}{', trained with queues' if setting == NARROW else ''}"
        parts += [f"## {title}", f"![Load beyond the rule](figures/loads-{setting.replace(' ', '-')}.png)"]
        parts += [text for condition in conditions for text in gap_table(rows, setting, condition)]
    tried = tried_in_time(rows).items()
    counts = ", ".join(f"{label} {count}" for label, count in tried)
    parts += [
        "## In time",
        IN_TIME.format(counts=counts),
        "![Stable, and carried in overload](figures/time.png)",
        time_table(in_time),
    ]
    parts += ["## How this was made", "```\n" + "\n".join(commands) + "\n```"]
    write_atomically(folder / "report.md", ("\n\n".join(parts) + "\n").encode())
    return folder / "report.md"
