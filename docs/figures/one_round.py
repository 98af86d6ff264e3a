"""The picture on top of the README: one round of messages, and what a node can compute from them.

python docs/figures/one_round.py     writes docs/figures/one-round.svg
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

OUT = Path(__file__).with_name("one-round.svg")
VALUES = [4.0, -2.0, 0.5, 1.0, 9.0]  # of the neighbours; the last is an outlier
WEIGHT = 0.4
INK, SOFT, BLUE, ORANGE = "#1c2733", "#5b6673", "#1f5fa8", "#d9480f"
FORMED = (
    (
        "weighted sum",
        WEIGHT * sum(VALUES),
        f"most graph convolutions (weights {WEIGHT:g})",
        SOFT,
    ),
    ("maximum", max(VALUES), "the extreme nearby", ORANGE),
    ("median", float(np.median(VALUES)), "the outlier 9 has one vote", ORANGE),
    ("deviation", float(np.std(VALUES)), "how much neighbours differ", ORANGE),
)


def draw_node(axis, place, text, colour, size):
    """Draw a node with its text."""
    axis.scatter(*place, s=size, color=colour, edgecolor="white", zorder=3)
    style = {"ha": "center", "va": "center", "color": "white", "zorder": 4}
    axis.text(*place, text, fontsize=12, fontweight="bold", **style)


def draw():
    """Draw the neighbours on the left, what the node forms on the right."""
    plt.rcParams.update(
        {"font.family": "sans-serif", "svg.hashsalt": "graphact"}
    )
    figure, axis = plt.subplots(figsize=(9, 3.4))
    axis.set(xlim=(-2.1, 7.2), ylim=(-1.85, 1.75))
    axis.set_aspect("equal")
    axis.set_axis_off()
    angles = np.linspace(np.pi / 2, -3 * np.pi / 2, len(VALUES), endpoint=False)
    for value, angle in zip(VALUES, angles, strict=True):
        place = 1.3 * np.array([np.cos(angle), np.sin(angle)])
        arrow = {"arrowstyle": "-|>", "color": BLUE, "lw": 2, "shrinkA": 15}
        axis.annotate("", (0, 0), place, arrowprops={**arrow, "shrinkB": 18})
        draw_node(axis, place, f"{value:g}", BLUE, 620)
    draw_node(axis, (0, 0), "i", INK, 800)
    heading = {"fontsize": 13, "fontweight": "bold", "color": INK}
    axis.text(-0.1, -1.78, "one round of messages", ha="center", **heading)
    axis.text(2.15, 1.42, "what node i can compute from them", **heading)
    for row, (name, value, meaning, colour) in enumerate(FORMED):
        y = 0.85 - 0.68 * row
        axis.text(2.15, y, name, fontsize=13, color=colour, va="center")
        shown = {"fontsize": 14, "fontweight": "bold", "color": colour}
        axis.text(4.55, y, f"{value:.3g}", ha="right", va="center", **shown)
        axis.text(4.85, y, meaning, fontsize=11, color=SOFT, va="center")
    axis.plot([2.0, 2.0], [0.4, -1.5], color=ORANGE, lw=3)
    axis.text(
        2.15,
        -1.78,
        "orange: without a further message",
        fontsize=11,
        color=ORANGE,
    )
    figure.savefig(
        OUT, bbox_inches="tight", facecolor="white", metadata={"Date": None}
    )
    plt.close(figure)


if __name__ == "__main__":
    draw()
