"""How graphact agents demo shows what happens: live in a terminal, as lines elsewhere, and at the end as a figure."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from graphact._extras import is_installed
from graphact.commands.agents_demo_sensors import ENTRIES, SensorNetwork

Styled = tuple[str, str]
WIDTH, HEIGHT = 46, 17
PANEL = 88
"""How wide inferences are shown; narrower, events have lines of their own."""
HEADER = "  run  answers  links missed   RMSE before  after\n"
COLD, WARM = (33, 102, 172), (178, 24, 43)
MEASURED, ANSWERED, CENTRAL, FAULTY = "#999999", "#0072b2", "#e69f00", "#d55e00"


@contextmanager
def open_view(network: SensorNetwork) -> "Iterator[Lines | Screen]":
    """A live view where there is a terminal and rich, lines of text otherwise."""
    if is_installed("rich"):
        from rich.console import Console
        from rich.live import Live

        if (console := Console()).is_terminal:
            with Live(console=console, auto_refresh=False) as live:
                yield Screen(live, len(network.places))
            return
    yield (lines := Lines())
    lines.end(network)


@dataclass
class Lines:
    """One line for each inference that has ended."""

    printed: int = 0
    last: int = -1

    def show(self, network: SensorNetwork, run: int) -> None:
        if run != self.last:
            sys.stdout.write(HEADER if self.last < 0 else line_of(network, self.last) + "\n")
            self.last = run
        sys.stdout.writelines(f"run {number}: {sentence}\n" for number, sentence in network.events[self.printed :])
        self.printed = len(network.events)
        sys.stdout.flush()

    def end(self, network: SensorNetwork) -> None:
        """The last inference has ended, too."""
        sys.stdout.write(line_of(network, self.last) + "\n" if self.last >= 0 else "")


@dataclass
class Screen:
    """A map on the left, the last inferences on the right."""

    live: Any
    sensors: int

    def show(self, network: SensorNetwork, run: int) -> None:
        """As much as the terminal holds: the last inferences in any case, the map where there is room for it."""
        from rich.columns import Columns
        from rich.panel import Panel
        from rich.text import Text

        size = self.live.console.size
        height = min(HEIGHT + 2, size.height - 1)
        beside = size.width - (WIDTH + 4) - 1
        has_map = height == HEIGHT + 2 and beside >= len(HEADER) + 4
        width = min(PANEL, beside if has_map else size.width)

        def panel(parts: list[Styled], title: str, width: int) -> Panel:
            return Panel(Text.assemble(*parts, no_wrap=True), title=title, width=width, height=height)

        shown = [panel(last_runs(network, run, height - 3, width - 4), "inferences", width)]
        if has_map:
            shown.insert(0, panel(map_of(network, run), f"{self.sensors} sensors, one process each", WIDTH + 4))
        self.live.update(Columns(shown), refresh=True)


def map_of(network: SensorNetwork, run: int) -> list[Styled]:
    """Every sensor as its number on the colour of its last output; one that is down is crossed out."""
    cells = [[("  ", "")] * (WIDTH // 2) + [("\n", "")] for _ in range(HEIGHT)]
    for i, (x, y) in enumerate(network.places):
        row, column = round((1 - y) * (HEIGHT - 1)), round(x * (WIDTH // 2 - 1))
        value, before = (network.outputs[number % ENTRIES, i] for number in (run, run - 1))
        style = style_of(before if np.isnan(value) else value)
        cells[row][column] = ("><", "bold white on black") if i in network.down else (f"{i:2d}", style)
    return list(chain.from_iterable(cells))


def last_runs(network: SensorNetwork, run: int, rows: int, width: int) -> list[Styled]:
    """The last inferences, and the events among them, in so many rows: the newest are always there."""
    events = dict(network.events)
    shown: list[list[Styled]] = []
    for number in range(run, network.first - 1, -1):
        line, event = line_of(network, number), events.get(number, "")
        colour = "green" if network.is_complete(number) else "yellow"
        if len(line) + 2 + len(event) > width and event:
            shown.append([(f"       {event}\n", "bold red")])
            event = ""
        shown.append([(line, colour), (f"  {event}\n" if event else "\n", "bold red")])
    return [(HEADER, "dim"), *chain.from_iterable(reversed(shown[:rows]))]


def line_of(network: SensorNetwork, run: int) -> str:
    """An inference in one line; without errors as long as nobody has answered."""
    before, after = ("-" if math.isnan(error) else f"{error:.3f}" for error in network.errors(run))
    answers = f"{network.answers(run)}/{len(network.places)}"
    return f"{run:5d}  {answers:>7s}  {network.links_missed(run):12d}   {before:>11s}  {after:>5s}"


def style_of(value: float) -> str:
    """A background between cold and warm."""
    if np.isnan(value):
        return "dim"
    share = min(1.0, abs(value) / 2)
    red, green, blue = (round(247 + share * (tone - 247)) for tone in (WARM if value > 0 else COLD))
    return f"{'white' if share > 0.6 else 'black'} on rgb({red},{green},{blue})"


def draw(network: SensorNetwork, folder: Path) -> Path:
    """Write ``agents.png``: the sensor field, the errors over time, and the links missed; return where it is."""
    from graphact.experiments.style import house_style, new_sheet, settle, to_png
    from graphact.storage import write_atomically

    runs = np.array(network.shown)
    at = runs % ENTRIES
    with house_style():
        sheet = new_sheet(4.6)
        grid = sheet.add_gridspec(3, 3, height_ratios=[1.5, 1, 0.8])
        titles = {"true": network.truth, "measured": network.measured, "answered": network.outputs}
        for column, (title, values) in enumerate(titles.items()):
            draw_places(sheet.add_subplot(grid[0, column]), network, values[at[-1]], title)

        errors = sheet.add_subplot(grid[1, :])
        before, after = np.array([network.errors(run) for run in network.shown]).T
        central = np.sqrt(np.square(network.central[at] - network.truth[at]).mean(axis=-1))
        errors.plot(runs, before, color=MEASURED, label="measured")
        errors.plot(runs, central, color=CENTRAL, linewidth=3, alpha=0.6, label="centralised model")
        errors.plot(runs, after, ".-", color=ANSWERED, label="agents")
        errors.set(ylabel="RMSE", ylim=(0, None))
        errors.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, borderaxespad=0.2)

        missed = [network.links_missed(run) for run in network.shown]
        top = max([*missed, 1])
        links = sheet.add_subplot(grid[2, :], sharex=errors)
        links.bar(runs, missed, color=FAULTY, width=0.7)
        links.set(xlabel="run", ylabel="links missed", ylim=(0, top * 1.6))
        kill, start, stop, go_on = (network.first + moment for moment in network.schedule)
        text = {"y": top * 1.15, "ha": "center", "fontsize": 8, "color": FAULTY}
        links.text((kill + start) / 2, s=f"kill -9 sensor {network.killed}", **text)
        links.text((stop + go_on) / 2, s=f"SIGSTOP sensor {network.stopped}", **text)
        settle(sheet)
        write_atomically(folder / "agents.png", to_png(sheet))
    return folder / "agents.png"


def draw_places(axes: Any, network: SensorNetwork, values: Any, title: str) -> None:
    """The sensors in the plane, coloured by value; links in grey, each pair once."""
    for i, j in network.graph.to_edge_index()[0].T.tolist():
        if i < j:
            axes.plot(*network.places[[i, j]].T, color="#d5d9de", linewidth=0.6, zorder=1)
    axes.scatter(*network.places.T, c=values, cmap="RdBu_r", vmin=-2, vmax=2, s=34, edgecolors="black", linewidths=0.4)
    axes.set(title=title, aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
