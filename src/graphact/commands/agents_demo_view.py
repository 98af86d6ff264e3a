"""The demonstration in a terminal: a map of the sensors and the last inferences. Plain lines where rich is missing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from graphact.commands.agents_demo_story import ENTRIES, Story

WIDTH, HEIGHT, LINES = 46, 17, 13
HEADER = "  run  answers  links missed   RMSE before  after\n"
COLD, WARM = (33, 102, 172), (178, 24, 43)


class View(Protocol):
    """Shows a story while it goes on."""

    def show(self, story: Story, run: int) -> None:
        """Show the present state."""


@contextmanager
def open_view(story: Story) -> Iterator[View]:
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
        yield Screen(live, len(story.places))


class Lines:
    """One line for each inference that has ended."""

    def __init__(self) -> None:
        self._told, self._last = 0, -1

    def show(self, story: Story, run: int) -> None:
        """Say what is new."""
        if run != self._last:
            sys.stdout.write(HEADER if self._last < 0 else line_of(story, self._last) + "\n")
            self._last = run
        for number, sentence in story.happened[self._told :]:
            sys.stdout.write(f"run {number}: {sentence}\n")
        self._told = len(story.happened)
        sys.stdout.flush()


class Screen:
    """A map on the left, the last inferences on the right."""

    def __init__(self, live: Any, sensors: int) -> None:
        self._live, self._sensors = live, sensors

    def show(self, story: Story, run: int) -> None:
        """Draw again."""
        from rich.columns import Columns
        from rich.panel import Panel

        title = f"{self._sensors} sensors, one process each"
        sides = [
            Panel(draw_map(story, run), title=title, width=WIDTH + 4, height=HEIGHT + 2),
            Panel(draw_runs(story, run), title="inferences", width=88, height=HEIGHT + 2),
        ]
        self._live.update(Columns(sides), refresh=True)


def draw_map(story: Story, run: int) -> Any:
    """Every sensor as its number on the colour of its last answer; one that is down is crossed out."""
    from rich.text import Text

    cells = [[("  ", "")] * (WIDTH // 2) for _ in range(HEIGHT)]
    for i, (x, y) in enumerate(story.places):
        row, column = round((1 - y) * (HEIGHT - 1)), round(x * (WIDTH // 2 - 1))
        value = story.outputs[run % ENTRIES, i]
        before = story.outputs[(run - 1) % ENTRIES, i]
        value = before if value != value else value
        cells[row][column] = ("><", "bold white on black") if i in story.down else (f"{i:2d}", style_of(value))
    text = Text(no_wrap=True)
    for row_cells in cells:
        for characters, style in row_cells:
            text.append(characters, style)
        text.append("\n")
    return text


def draw_runs(story: Story, run: int) -> Any:
    """The last inferences, and what befell the sensors."""
    from rich.text import Text

    text = Text(no_wrap=True)
    text.append(HEADER, "dim")
    told = dict(story.happened)
    for number in range(max(story.first, run - LINES + 1), run + 1):
        whole = story.answers(number) == len(story.places) and story.links_missed(number) == 0
        text.append(line_of(story, number), "green" if whole else "yellow")
        text.append(f"  {told[number]}" if number in told else "", "bold red")
        text.append("\n")
    return text


def line_of(story: Story, run: int) -> str:
    """An inference in one line."""
    before, after = story.errors(run)
    answers = f"{story.answers(run)}/{len(story.places)}"
    return f"{run:5d}  {answers:>7s}  {story.links_missed(run):12d}   {before:11.3f}  {after:5.3f}"


def style_of(value: float) -> str:
    """A background between cold and warm."""
    if value != value:
        return "dim"
    share = min(1.0, abs(value) / 2)
    red, green, blue = (round(247 + share * (tone - 247)) for tone in (WARM if value > 0 else COLD))
    return f"{'white' if share > 0.6 else 'black'} on rgb({red},{green},{blue})"
