"""The figures of benchmarks/guarantees.py."""

import math

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from graphact.experiments.report.style import house_style, new_sheet, settle, to_png

GAP = "no limit"


def tradeoff_figure(rows, variants, radius, file):
    """Accuracy over the limit, above; accuracy that is certified within the radius, below."""
    with house_style():
        sheet = new_sheet(4.6)
        panels = sheet.subplots(2, sharex=True)
        limits = sorted({row["limit"] for row in rows if row["limit"] is not None})
        free = limits[-1] * 6  # where networks without a limit are drawn
        for axes, name, label in zip(
            panels,
            ("accuracy", "certified"),
            ("Accuracy (%)", f"Certified accuracy (%),\nchanges up to {radius:g}"),
            strict=True,
        ):
            for variant in variants:
                line(axes, rows, variant, name, limits, free)
            axes.axhline(25, color="#7d8590", linewidth=0.9, linestyle=(0, (1, 1.6)))
            axes.set_ylabel(label)
            axes.grid(axis="y")
        panels[0].text(free, 25, "chance", ha="right", va="bottom", fontsize=7.5, color="#7d8590")
        panels[1].set_xscale("log")
        panels[1].set_xticks([*limits, free], [*(f"{limit:g}" for limit in limits), GAP])
        panels[1].xaxis.set_minor_formatter(NullFormatter())
        panels[1].set_xticks([], minor=True)
        panels[1].set_xlabel("Limit of the certified Lipschitz constant")
        above(panels[0])
        finish(sheet, file)


def line(axes, rows, variant, name, limits, free):
    means = []
    for limit in [*limits, None]:
        some = [row[name] for row in rows if row["method"] == variant.method and row["limit"] == limit]
        means.append(sum(some) / len(some))
    style = variant.style
    look = {"color": style.color, "marker": style.marker, "markersize": 4.5 * style.size, "markeredgewidth": 0}
    axes.plot(limits, means[:-1], linestyle=style.line, linewidth=1.4, label=variant.label, **look)
    axes.plot([free], means[-1:], linestyle="none", **look)


def topology_figure(rows, variants, kind, strengths, file):
    """Change of the outputs over the strength of a perturbation: certified, found, and what it does to decisions."""
    with house_style():
        sheet = new_sheet(6.6)
        panels = sheet.subplots(3, sharex=True)
        for axes, name, label in zip(
            panels,
            ("certified", "found", "kept"),
            ("Certified change, at most", "Found change, at least", "Decisions kept (%)"),
            strict=True,
        ):
            for variant in variants:
                style = variant.style
                axes.plot(
                    strengths,
                    [mean_at(rows, variant, kind, strength, name) for strength in strengths],
                    color=style.color,
                    linestyle=style.line,
                    linewidth=1.4,
                    marker=style.marker,
                    markersize=4.5 * style.size,
                    markeredgewidth=0,
                    label=variant.label,
                )
            axes.set_ylabel(label)
            axes.grid(axis="y")
            if name != "kept":
                axes.set_yscale("log")
                low, high = axes.get_ylim()
                axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 50 * low else (1.0,)))
                axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
                axes.yaxis.set_minor_formatter(NullFormatter())
        panels[2].set_xscale("log")
        panels[2].set_xticks(strengths, [f"{strength:g}" for strength in strengths])
        panels[2].set_xticks([], minor=True)
        panels[2].set_xlabel("Lost links" if kind == "lost" else "Norm of the noise on the shift operator")
        above(panels[0])
        finish(sheet, file)


def mean_at(rows, variant, kind, strength, name):
    some = [row[name] for row in rows if row["method"] == variant.method and row.get(kind) == strength]
    if name == "kept":
        return 100 * sum(some) / len(some)
    return math.exp(sum(map(math.log, some)) / len(some))


def above(axes):
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.12, 1),
        ncols=3,
        borderaxespad=0.2,
        borderpad=0,
        handlelength=2.6,
        columnspacing=1.2,
    )


def finish(sheet, file):
    settle(sheet)
    file.write_bytes(to_png(sheet))
