"""graphact agents demo: sensors on this machine, one process each, denoise together, in a live view and a figure."""

import argparse
import math
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphact import agents
from graphact._checks import check_integer
from graphact._extras import is_installed, require
from graphact.agents.addresses import free_addresses
from graphact.agents.messages import Array
from graphact.agents.processes import Processes
from graphact.commands.parser import command, option
from graphact.storage import check_writable

if TYPE_CHECKING:
    from graphact import Graph
    from graphact.nn import GCNN

Styled = tuple[str, str]
SLOT, PERIOD = 0.1, 0.5
ATTEMPTS = 3
ENTRIES, NOISE, NEIGHBORS, STEPS = 500, 0.5, 4, 300
EVENTS = {
    "kill": "sensor {} is killed (kill -9)",
    "start": "sensor {} is started again",
    "stop": "sensor {} stands still (SIGSTOP)",
    "continue": "sensor {} goes on (SIGCONT)",
}
WIDTH, HEIGHT = 46, 17
PANEL = 88
"""How wide inferences are shown; narrower, events have lines of their own."""
HEADER = "  run  answers  links missed   RMSE before  after\n"
COLD, WARM = (33, 102, 172), (178, 24, 43)
MEASURED, ANSWERED, CENTRAL, FAULTY = "#999999", "#0072b2", "#e69f00", "#d55e00"


@command(
    option("--sensors", "how many (default: 20)", type=int, default=20),
    option("--transport", "default: udp", default="udp"),
    option("--runs", "inferences, two a second (default: 30)", type=int, default=30),
    "--seed",
    option("--out", "where the figure goes", default=Path("out/agents-demo")),
)
def demo(options: argparse.Namespace) -> int:
    """Train a small denoiser for a sensor graph, start one process for each sensor, kill one and stop another while
    they work, and draw what happened.
    """
    check_integer("--sensors", options.sensors, minimum=8)
    check_integer("--runs", options.runs, minimum=12)
    require("graphact agents demo needs", "matplotlib", *(["zenoh"] if options.transport == "zenoh" else []))
    check_writable(options.out)
    progress(f"training a denoiser for {options.sensors} sensors ...")
    network = SensorNetwork.make(options.sensors, options.runs, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(ATTEMPTS):
            try:
                work(network, Path(folder) / f"{attempt}", options.transport)
                break
            except ChildProcessError:
                if attempt == ATTEMPTS - 1:
                    raise
                progress("an agent could not start, perhaps another program took its port; once more ...")
    sys.stdout.write(f"{network.summary()}\nfigure: {draw(network, options.out)}\n")
    return 0


def work(network: "SensorNetwork", folder: Path, transport: str) -> None:
    """Start one process for each sensor, watch them and end them; ChildProcessError if one does not start."""
    places = free_addresses(len(network.places))
    tls = None if transport == "zenoh" else False
    folders = agents.split(network.model, network.graph, folder, addresses=places, tls=tls)
    files = [each / "measured.npy" for each in folders]
    for i, file in enumerate(files):
        np.save(file, network.measured[:, i, None])
    origin = time.time()
    arguments = ["--transport", transport, "--origin", repr(origin), "--repeat"]
    arguments += ["--period", repr(PERIOD), "--slot", repr(SLOT)]
    progress(f"starting {len(folders)} processes that talk over {transport} ...")
    with Processes(folders, arguments, files) as processes:
        processes.wait_until_ready()
        with open_view(network) as view:
            network.first = 1 + int((time.time() + PERIOD - origin) / PERIOD)
            watch(network, processes, view, origin)
            processes.stop()
            processes.wait(20)


def progress(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def watch(network: "SensorNetwork", processes: Processes, view: "Lines | Screen", origin: float) -> None:
    """Collect results run by run, and kill, stop and restart two processes when it is time."""
    for run in network.shown:
        event = network.schedule.get(run - network.first)
        if event is not None:
            network.note(run, event)
        if event == "kill":
            processes.kill(network.killed)
        elif event == "start":
            processes.start(network.killed)
        elif event is not None:
            processes.running[network.stopped].send_signal(signal.SIGSTOP if event == "stop" else signal.SIGCONT)
        view.show(network, run)
        until = origin + (run + 1) * PERIOD - 0.02
        while time.time() < until:
            network.collect(processes.read(max(0.0, until - time.time())))
            view.show(network, run)


@dataclass
class SensorNetwork:
    """Sensors, what they measure, and the results of their agents so far."""

    graph: "Graph"
    model: "GCNN"
    places: Array  # (N, 2) in the unit square
    truth: Array  # the field at the sensors, (time, N)
    measured: Array  # the same with noise
    central: Array  # the outputs of the centralised model
    runs: int
    killed: int  # the sensor whose process is killed and started again
    stopped: int  # the sensor whose process is stopped and continued
    outputs: Array  # of the agents, (time, N), NaN where there is none
    missed: dict[tuple[int, int], int] = field(default_factory=dict)  # links, by (run, node)
    seconds: list[float] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    first: int = -1  # the first run shown; -1 before it is known

    @classmethod
    def make(cls, sensors: int, runs: int, seed: int) -> "SensorNetwork":
        """Draw places, a field with two moving bumps and noise, and train a model to remove the noise."""
        import torch

        from graphact import Graph
        from graphact.nn import GCNN

        rng = np.random.default_rng(seed)
        places = scattered(sensors, rng)
        graph = Graph.nearest_neighbors(torch.from_numpy(places), NEIGHBORS).normalize("spectral")
        torch.manual_seed(seed)
        model = GCNN([1, 8], order=2, activation="max-ga", hops=1, out_features=1).double()
        train(model, graph, moving_field(places, np.arange(2000) * 0.37 + 1000), rng)
        truth = moving_field(places, np.arange(ENTRIES) * 0.12)
        measured = truth + NOISE * rng.normal(size=truth.shape)
        with torch.no_grad():
            central = model(torch.from_numpy(measured[..., None]), graph).numpy()[..., 0]
        killed, stopped = (int(i) for i in np.argsort(-graph.degree.numpy(), kind="stable")[[0, 2]])
        return cls(graph, model, places, truth, measured, central, runs, killed, stopped, np.full_like(truth, np.nan))

    @property
    def schedule(self) -> dict[int, str]:
        """The events, by the number of runs since the first."""
        third = self.runs // 3
        return {third: "kill", third + 3: "start", 2 * third: "stop", 2 * third + 2: "continue"}

    def note(self, run: int, event: str) -> None:
        """Keep which event hit which sensor."""
        sensor = self.killed if event in ("kill", "start") else self.stopped
        self.events.append((run, EVENTS[event].format(sensor)))
        (self.down.add if event in ("kill", "stop") else self.down.discard)(sensor)

    def collect(self, reports: list[dict[str, Any]]) -> None:
        """Keep the results among what the processes printed."""
        for report in reports:
            if report["event"] == "result" and report["run"] >= self.first:
                self.outputs[report["run"] % ENTRIES, report["node"]] = report["output"][0]
                self.missed[report["run"], report["node"]] = sum(map(len, report["missed"]))
                if report["complete"]:
                    self.seconds.append(report["seconds"])

    @property
    def shown(self) -> range:
        return range(self.first, self.first + self.runs)

    def links_missed(self, run: int) -> int:
        return sum(missed for (number, _), missed in self.missed.items() if number == run)

    def answers(self, run: int) -> int:
        return sum(number == run for number, _ in self.missed)

    def is_complete(self, run: int) -> bool:
        """Whether every node has answered in a run, with every link."""
        return self.answers(run) == len(self.places) and self.links_missed(run) == 0

    def errors(self, run: int) -> tuple[float, float]:
        """Root mean square errors of the measurements and of the outputs."""
        at = run % ENTRIES
        there = ~np.isnan(self.outputs[at])
        if not there.any():
            return math.nan, math.nan
        before, after = ((values[at] - self.truth[at])[there] for values in (self.measured, self.outputs))
        return math.sqrt(np.square(before).mean()), math.sqrt(np.square(after).mean())

    def summary(self) -> str:
        """Two lines at the end."""
        complete = [run for run in self.shown if self.is_complete(run)]
        at = [run % ENTRIES for run in complete]
        apart = float(np.abs(self.outputs[at] - self.central[at]).max()) if complete else math.nan
        before, after = np.nanmean([self.errors(run) for run in self.shown], axis=0)
        quick = 1000 * float(np.median(self.seconds)) if self.seconds else math.nan
        return (
            f"{self.runs} inferences, {len(complete)} of them with every sensor and every link; these differ from the "
            f"centralised model by at most {apart:.1g}\n"
            f"RMSE {before:.3f} measured, {after:.3f} after denoising; an inference takes {quick:.1f} ms (median)"
        )


def scattered(count: int, rng: np.random.Generator) -> Array:
    """Random places that keep some distance from each other: of ten candidates, always the loneliest."""
    places = rng.random((1, 2))
    while len(places) < count:
        candidates = rng.random((10, 2))
        distances = np.linalg.norm(candidates[:, None] - places[None], axis=-1).min(axis=1)
        places = np.vstack([places, candidates[distances.argmax()]])
    return places


def moving_field(places: Array, times: Array) -> Array:
    """Two bumps, one warm and one cold, that wander, ``(time, N)``."""
    value = np.zeros((len(times), len(places)))
    for sign, speed, phase in ((2.0, 0.31, 0.0), (-1.6, 0.23, 2.5)):
        angle = speed * times + phase
        centre = np.stack([0.5 + 0.35 * np.cos(angle), 0.5 + 0.35 * np.sin(1.3 * angle)], axis=-1)
        distance = np.linalg.norm(places[None] - centre[:, None], axis=-1)
        value += sign * np.exp(-np.square(distance / 0.35))
    return value


def train(model: "GCNN", graph: "Graph", clean: Array, rng: np.random.Generator) -> None:
    """Train the model to remove noise: a few seconds of Adam."""
    import torch

    targets = torch.from_numpy(clean[..., None])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(STEPS):
        chosen = torch.from_numpy(rng.integers(0, len(targets), 100))
        noise = torch.from_numpy(NOISE * rng.normal(size=(100, *targets.shape[1:])))
        loss = (model(targets[chosen] + noise, graph) - targets[chosen]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


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
    yield Lines()


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
