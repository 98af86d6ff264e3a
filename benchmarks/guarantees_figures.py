"""The figures of benchmarks/guarantees.py."""

import math

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from graphact_lab.figures import house_style, new_sheet, settle, to_png


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
