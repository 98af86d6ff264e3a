"""The figure of the demonstration: the sensor field, the errors over time, and which links were missed when."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from graphact.commands.agents_demo_story import ENTRIES, Story
from graphact.experiments.style import house_style, new_sheet, settle, to_png

MEASURED, ANSWERED, CENTRAL, HURT = "#999999", "#0072b2", "#e69f00", "#d55e00"


def draw(story: Story, folder: Path) -> Path:
    """Write ``agents.png``; where it is."""
    from graphact._atomic import write_atomically

    with house_style():
        sheet = new_sheet(4.6)
        grid = sheet.add_gridspec(3, 3, height_ratios=[1.5, 1, 0.8])
        last = (story.first + story.runs - 1) % ENTRIES
        titles = {"true": story.truth, "measured": story.measured, "answered": story.outputs}
        for column, (title, values) in enumerate(titles.items()):
            draw_places(sheet.add_subplot(grid[0, column]), story, values[last], title)
        errors = sheet.add_subplot(grid[1, :])
        draw_errors(errors, story)
        draw_missed(sheet.add_subplot(grid[2, :], sharex=errors), story)
        settle(sheet)
        write_atomically(folder / "agents.png", to_png(sheet))
    return folder / "agents.png"


def draw_places(axes: Any, story: Story, values: Any, title: str) -> None:
    """The sensors in the plane, coloured by value; links in grey."""
    for i, others in enumerate(neighbors_of(story)):
        for j in others:
            axes.plot(*story.places[[i, j]].T, color="#d5d9de", linewidth=0.6, zorder=1)
    axes.scatter(*story.places.T, c=values, cmap="RdBu_r", vmin=-2, vmax=2, s=34, edgecolors="black", linewidths=0.4)
    axes.set_title(title)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def neighbors_of(story: Story) -> list[Any]:
    """For every sensor those it hears, each pair once."""
    starts, members = story.graph.incoming.pointers.tolist(), story.graph.incoming.members.tolist()
    return [[j for j in members[a:b] if j < i] for i, (a, b) in enumerate(pairwise(starts))]


def draw_errors(axes: Any, story: Story) -> None:
    """Root mean square errors over the runs."""
    runs = np.arange(story.first, story.first + story.runs)
    before, after = np.array([story.errors(int(run)) for run in runs]).T
    at = runs % ENTRIES
    central = np.sqrt(np.square(story.central[at] - story.truth[at]).mean(axis=-1))
    axes.plot(runs, before, color=MEASURED, label="measured")
    axes.plot(runs, central, color=CENTRAL, linewidth=3, alpha=0.6, label="centralised model")
    axes.plot(runs, after, ".-", color=ANSWERED, label="agents")
    axes.set_ylabel("RMSE")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, borderaxespad=0.2)


def draw_missed(axes: Any, story: Story) -> None:
    """Links missed in each run, and what happened."""
    runs = np.arange(story.first, story.first + story.runs)
    missed = [story.links_missed(int(run)) for run in runs]
    axes.bar(runs, missed, color=HURT, width=0.7)
    axes.set_ylabel("links missed")
    axes.set_xlabel("run")
    top = max([*missed, 1])
    axes.set_ylim(0, top * 1.6)
    whats = list(story.events.items())
    for (begin, what), (end, _) in zip(whats[::2], whats[1::2], strict=True):
        label = f"{what} -9 sensor {story.victim}" if what == "kill" else f"SIGSTOP sensor {story.sleeper}"
        axes.text(story.first + (begin + end) / 2, top * 1.15, label, ha="center", fontsize=8, color=HURT)
