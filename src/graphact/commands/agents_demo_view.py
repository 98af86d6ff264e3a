"""What graphact agents demo shows: a map and the last inferences in a terminal, and a figure at the end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphact.commands.agents_demo import ENTRIES, SensorNetwork

WIDTH, HEIGHT, LINES = 46, 17, 13
HEADER = "  run  answers  links missed   RMSE before  after\n"
COLD, WARM = (33, 102, 172), (178, 24, 43)
MEASURED, ANSWERED, CENTRAL, FAULTY = "#999999", "#0072b2", "#e69f00", "#d55e00"


class View(Protocol):
    """Shows a network while it works."""

    def show(self, network: SensorNetwork, run: int) -> None:
        """Show the present state."""


@contextmanager
def open_view(network: SensorNetwork) -> Iterator[View]:
    """A live view where there is a terminal and rich, lines of text otherwise."""
    try:
        from rich.console import Console
        from rich.live import Live
    except ModuleNotFoundError:
        yield Lines()
        return
    console = Console()
    if not console.is_terminal:
        yield Lines()
        return
    with Live(console=console, auto_refresh=False) as live:
        yield Screen(live, len(network.places))


class Lines:
    """One line for each inference that has ended."""

    def __init__(self) -> None:
        self._printed, self._last = 0, -1

    def show(self, network: SensorNetwork, run: int) -> None:
        """Print what is new."""
        if run != self._last:
            sys.stdout.write(HEADER if self._last < 0 else line_of(network, self._last) + "\n")
            self._last = run
        for number, sentence in network.events[self._printed :]:
            sys.stdout.write(f"run {number}: {sentence}\n")
        self._printed = len(network.events)
        sys.stdout.flush()


class Screen:
    """A map on the left, the last inferences on the right."""

    def __init__(self, live: Any, sensors: int) -> None:
        self._live, self._sensors = live, sensors

    def show(self, network: SensorNetwork, run: int) -> None:
        """Draw again."""
        from rich.columns import Columns
        from rich.panel import Panel

        title = f"{self._sensors} sensors, one process each"
        sides = [
            Panel(map_of(network, run), title=title, width=WIDTH + 4, height=HEIGHT + 2),
            Panel(last_runs(network, run), title="inferences", width=88, height=HEIGHT + 2),
        ]
        self._live.update(Columns(sides), refresh=True)


def map_of(network: SensorNetwork, run: int) -> Any:
    """Every sensor as its number on the colour of its last output; one that is down is crossed out."""
    from rich.text import Text

    cells = [[("  ", "")] * (WIDTH // 2) for _ in range(HEIGHT)]
    for i, (x, y) in enumerate(network.places):
        row, column = round((1 - y) * (HEIGHT - 1)), round(x * (WIDTH // 2 - 1))
        value, before = (network.outputs[number % ENTRIES, i] for number in (run, run - 1))
        style = style_of(before if np.isnan(value) else value)
        cells[row][column] = ("><", "bold white on black") if i in network.down else (f"{i:2d}", style)
    text = Text(no_wrap=True)
    for row_cells in cells:
        for characters, style in row_cells:
            text.append(characters, style)
        text.append("\n")
    return text


def last_runs(network: SensorNetwork, run: int) -> Any:
    """The last inferences, and the events among them."""
    from rich.text import Text

    text = Text(no_wrap=True)
    text.append(HEADER, "dim")
    events = dict(network.events)
    for number in range(max(network.first, run - LINES + 1), run + 1):
        text.append(line_of(network, number), "green" if network.is_complete(number) else "yellow")
        text.append(f"  {events[number]}" if number in events else "", "bold red")
        text.append("\n")
    return text


def line_of(network: SensorNetwork, run: int) -> str:
    """An inference in one line."""
    before, after = network.errors(run)
    answers = f"{network.answers(run)}/{len(network.places)}"
    return f"{run:5d}  {answers:>7s}  {network.links_missed(run):12d}   {before:11.3f}  {after:5.3f}"


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

    with house_style():
        sheet = new_sheet(4.6)
        grid = sheet.add_gridspec(3, 3, height_ratios=[1.5, 1, 0.8])
        last = (network.first + network.runs - 1) % ENTRIES
        titles = {"true": network.truth, "measured": network.measured, "answered": network.outputs}
        for column, (title, values) in enumerate(titles.items()):
            draw_places(sheet.add_subplot(grid[0, column]), network, values[last], title)
        errors = sheet.add_subplot(grid[1, :])
        draw_errors(errors, network)
        draw_missed(sheet.add_subplot(grid[2, :], sharex=errors), network)
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


def draw_errors(axes: Any, network: SensorNetwork) -> None:
    """Root mean square errors over the runs."""
    runs = np.arange(network.first, network.first + network.runs)
    before, after = np.array([network.errors(int(run)) for run in runs]).T
    at = runs % ENTRIES
    central = np.sqrt(np.square(network.central[at] - network.truth[at]).mean(axis=-1))
    axes.plot(runs, before, color=MEASURED, label="measured")
    axes.plot(runs, central, color=CENTRAL, linewidth=3, alpha=0.6, label="centralised model")
    axes.plot(runs, after, ".-", color=ANSWERED, label="agents")
    axes.set_ylabel("RMSE")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, borderaxespad=0.2)


def draw_missed(axes: Any, network: SensorNetwork) -> None:
    """Links missed in each run, and the events."""
    runs = np.arange(network.first, network.first + network.runs)
    missed = [network.links_missed(int(run)) for run in runs]
    top = max([*missed, 1])
    axes.bar(runs, missed, color=FAULTY, width=0.7)
    axes.set(xlabel="run", ylabel="links missed", ylim=(0, top * 1.6))
    events = list(network.schedule.items())
    for (begin, event), (end, _) in zip(events[::2], events[1::2], strict=True):
        label = f"{event} -9 sensor {network.killed}" if event == "kill" else f"SIGSTOP sensor {network.stopped}"
        axes.text(network.first + (begin + end) / 2, top * 1.15, label, ha="center", fontsize=8, color=FAULTY)
