"""Tables of docs/when-it-pays.md in Markdown: what was run, gains with their verdicts, controls and scores."""

from collections import defaultdict

from benchmark_rows import Setting, is_ours, is_pointwise
from graphact_lab.descriptions import BENCHMARKS, find_experiment
from graphact_lab.experiments.robustness.experiment import LEVELS
from graphact_lab.protocols import POOLING, jobs_of
from graphact_lab.statistics import ALPHA, holm
from graphact_lab.style import Variant, title_of


def label(variant):
    """As tables of Markdown show it."""
    return Variant(*variant).label.replace("|", "\\|")


def missing(benchmarks):
    """Lines of Markdown: of every protocol, how many cells were run, and which were not."""
    lines = ["| experiment | protocol | cells run | not run |", "|---|---|---|---|"]
    for experiment in BENCHMARKS:
        described = find_experiment(experiment)
        for name, protocol in described.protocols_at("full").items():
            levels = defaultdict(list)
            for job in jobs_of(protocol, 0):
                levels[next(iter(job.condition.values())), job.features].append((job.method, job.hops))
            texts, count, every = [], 0, sum(map(len, levels.values()))
            for (level, width), variants in levels.items():
                setting = Setting(experiment, name, width, level)
                cell = benchmarks.cells.get(setting) or benchmarks.optimistic.get(setting)
                own = cell.rows if cell else {}
                left = [one for one in variants if one not in own]
                count += len(variants) - len(left)
                where = title_of(level) if experiment != "robustness" else ""
                where += f" F = {width}" if len(protocol.features) > 1 else ""
                if left and len(left) == len(variants):
                    texts.append(where or "all of it")
                elif left:
                    texts.append(f"{where}: {', '.join(map(label, left))}".removeprefix(": "))
            whole = [text for text in texts if ":" not in text]
            parts = [text for text in texts if ":" in text]
            words = "; ".join([*([", ".join(whole)] if whole else []), *parts])
            lines.append(f"| {experiment} | `{name}` | {count} of {every} | {words} |")
    return "\n".join(lines)


def verdicts(cells, alpha=ALPHA):
    """Settings in which the gain is certain after Holm, those in which the loss is, and the others."""
    gaps = [cell.gain() for cell in cells]
    found = {"gains": [], "losses": [], "open": []}
    for cell, gap, p in zip(cells, gaps, holm([gap.p_unlike() for gap in gaps]), strict=True):
        found["open" if p >= alpha else "gains" if gap.mean > 0 else "losses"].append(cell)
    return found


def certain_pairs(cells, alpha=ALPHA):
    """Of all our activations in all settings: gains over pointwise ones that are certain, in words, and losses.

    A gain is that over the pointwise activation that validates best or over the one with the highest test mean, the
    smaller of both; a loss is from the former. Holm's adjustment is over all pairs of an activation and a setting.
    """
    pairs = [(cell, one) for cell in cells for one in cell.rows if is_ours(one) and not cell.has_diverged(one)]
    gaps = []
    for cell, one in pairs:
        gap = cell.gain(one)
        strict = cell.gain(one, cell.highest(is_pointwise))
        gaps.append(strict if 0 < gap.mean > strict.mean else gap)
    sure = [p < alpha for p in holm([gap.p_unlike() for gap in gaps])]
    found = [(cell, one, gap) for (cell, one), gap, is_sure in zip(pairs, gaps, sure, strict=True) if is_sure]
    ahead = [(cell, one, gap) for cell, one, gap in found if gap.mean > 0]
    return {
        "count": len(pairs),
        "gains": [
            f"{cell.setting}, {label(one)}, {gap.mean:+.1f} ± {gap.margin:.1f}{beside_controls(cell, one)}"
            for cell, one, gap in ahead
        ],
        "losses": sum(cell.gain(one).mean < 0 for cell, one, _ in found),
        "alone": bool(ahead) and all(cell.has_one_pointwise for cell, *_ in ahead),
        "on_one_split": bool(ahead) and all(cell.setting.on_one_split for cell, *_ in ahead),
    }


def beside_controls(cell, variant):
    """In words: the highest linear control of a setting, if it is as high as an activation."""
    best = max(cell.controls, key=cell.mean, default=None)
    if best is None or cell.mean(best) < cell.mean(variant):
        return ""
    return f" (of {cell.mean(variant):.1f} %, where {label(best)}, a linear control, has {cell.mean(best):.1f})"


def gains_table(cells):
    """Lines of Markdown: in each setting the two that stand for their kind, their scores, and the gain."""
    gaps = [cell.gain() for cell in cells]
    adjusted = holm([gap.p_unlike() for gap in gaps])
    lines = [
        "| backbone | F | data set | best pointwise | | best neighbourhood activation | | chosen on | gain "
        "| could show | adjusted p | exchanges |",
        "|---" * 12 + "|",
    ]
    for cell, gap, p in zip(cells, gaps, adjusted, strict=True):
        counts = (sum(map(is_pointwise, cell.rows)), sum(map(is_ours, cell.rows)))
        chosen = zip((cell.pointwise, cell.ours), counts, strict=True)
        sides = [f"{label(one)} (of {count}) | {cell.mean(one):.1f}" for one, count in chosen]
        basis = "other splits" if cell.tuned else "reported splits"
        exchanges = " / ".join(exchanges_of(cell, one) for one in (cell.pointwise, cell.ours))
        size = f"{round(gap.mean, 1) + 0.0:+.1f} ± {gap.margin:.1f}"  # which writes no -0.0
        shown = f"**{size}**" if p < ALPHA else size
        where = f"{cell.setting.protocol} | {cell.setting.width} | {title_of(cell.setting.level)}"
        numbers = f"{shown} | {gap.detectable():.1f} | {max(p, 0.001):.3f} | {exchanges}"
        lines.append(f"| {where} | {' | '.join(sides)} | {basis} | {numbers} |")
    return "\n".join(lines)


def by_data_set(cells, fewest=3):
    """Of data sets with so many settings, in words: how often our best activation is ahead, and of controls."""
    lines = []
    for level in dict.fromkeys(cell.setting.level for cell in cells):
        own = [cell for cell in cells if cell.setting.level == level]
        if len(own) < fewest:
            continue
        gains = [cell.gain().mean for cell in own]
        ahead = sum(gain > 0 for gain in gains)
        span = f"gains from {min(gains):+.1f} to {max(gains):+.1f} points"
        over = [max(map(cell.mean, cell.controls)) >= cell.mean(cell.ours) for cell in own if cell.controls]
        controls = f"the highest linear control is level or higher in {sum(over)} of {len(over)}"
        lines.append(f"{title_of(level)}: ahead in {ahead} of {len(own)}, {span}; {controls}")
    return lines


def controls_table(cells):
    """Lines of Markdown: each control minus the best pointwise activation, and our best activation minus it."""
    lines = [
        "| backbone | F | data set | control | exchanges | minus the best pointwise | our best minus it |",
        "|---" * 7 + "|",
    ]
    for cell in cells:
        where = f"{cell.setting.protocol} | {cell.setting.width} | {title_of(cell.setting.level)}"
        for control in cell.controls:
            over, under = cell.gain(control), cell.gain(reference=control)
            texts = [f"{gap.mean:+.2f} ± {gap.margin:.2f}" for gap in (over, under)]
            lines.append(
                f"| {where} | {label(control)} | {exchanges_of(cell, control)} | {label(cell.pointwise)}: {texts[0]} "
                f"| {label(cell.ours)}: {texts[1]} |"
            )
    return "\n".join(lines)


def exchanges_of(cell, variant):
    """Return the number of exchanges; with a star where a mean over all nodes is read besides."""
    return f"{cell.rows[variant][0]['exchanges']}{'*' if variant[0] in POOLING else ''}"


def scores_table(cells, published=None):
    """Lines of Markdown: mean test scores, activations down, settings across, published figures in brackets."""
    cells = sorted(cells, key=lambda cell: LEVELS.index(cell.setting.level) if cell.setting.level in LEVELS else 0)
    variants = sorted({variant for cell in cells for variant in cell.rows}, key=lambda one: Variant(*one).rank)
    widths = len({cell.setting.width for cell in cells}) > 1
    titles = [title_of(cell.setting.data_set) + (f", F = {cell.setting.width}" if widths else "") for cell in cells]
    lines = [f"| | {' | '.join(titles)} | exchanges |", "|---" * (len(cells) + 2) + "|"]
    for variant in variants:
        entries = []
        for cell in cells:
            text = "not run"
            if variant in cell.rows:
                text = "diverged" if cell.has_diverged(variant) else f"{cell.mean(variant):.1f}"
            known = (published or {}).get(variant[0], {}).get(cell.setting.data_set)
            entries.append(text + (f" ({known})" if known else ""))
        exchanges = next(exchanges_of(cell, variant) for cell in cells if variant in cell.rows)
        lines.append(f"| {label(variant)} | {' | '.join(entries)} | {exchanges} |")
    return "\n".join(lines)
