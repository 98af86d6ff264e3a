"""graphact agents demo: sensors on this machine, one process each, that denoise what they measure together."""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphact.agents.processes import Processes
    from graphact.commands.agents_demo_story import Story
    from graphact.commands.agents_demo_view import View

SLOT, PERIOD = 0.1, 0.5


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="watch agents work, one process each, on this machine",
        description="Train a small denoiser for a sensor graph, start one process for each sensor, kill one and stop "
        "another while they work, and draw what happened.",
    )
    parser.add_argument("--sensors", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--transport", choices=("zenoh", "udp"), default="udp", help="default: udp")
    parser.add_argument("--runs", type=int, default=30, help="inferences, two a second (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="decides everything random (default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("out/agents-demo"), metavar="DIR", help="where the figure goes"
    )
    parser.set_defaults(command=demo)


def demo(options: argparse.Namespace) -> int:
    """Train, start, watch, draw."""
    from graphact._checks import check_integer
    from graphact.agents.processes import Processes
    from graphact.commands import agents_demo_figure
    from graphact.commands.agents_demo_story import Story
    from graphact.commands.agents_demo_view import open_view

    check_integer("--sensors", options.sensors, minimum=8)
    check_integer("--runs", options.runs, minimum=12)
    sys.stdout.write(f"training a denoiser for {options.sensors} sensors ...\n")
    sys.stdout.flush()
    story = Story.invent(options.sensors, options.runs, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        folders, files = story.deploy(Path(folder))
        origin = time.time()
        arguments = ["--transport", options.transport, "--origin", repr(origin), "--repeat"]
        arguments += ["--period", repr(PERIOD), "--slot", repr(SLOT)]
        sys.stdout.write(f"starting {options.sensors} processes that talk over {options.transport} ...\n")
        sys.stdout.flush()
        with Processes(folders, arguments, files) as processes, open_view(story) as view:
            processes.wait_until_ready()
            story.begin(1 + int((time.time() + PERIOD - origin) / PERIOD))
            watch(story, processes, view, origin)
            processes.stop()
            processes.wait(20)
    path = agents_demo_figure.draw(story, options.out)
    sys.stdout.write(f"{story.summary()}\nfigure: {path}\n")
    return 0


def watch(story: "Story", processes: "Processes", view: "View", origin: float) -> None:
    """Collect what agents say, and hurt two of them when their time has come."""
    for run in range(story.first, story.first + story.runs):
        with told(story, run, view) as what:
            if what == "kill":
                processes.kill(story.victim)
            elif what == "start":
                processes.start(story.victim)
            elif what == "stop":
                processes.send_signal(story.sleeper, signal.SIGSTOP)
            elif what == "continue":
                processes.send_signal(story.sleeper, signal.SIGCONT)
        until = origin + (run + 1) * PERIOD - 0.02
        while time.time() < until:
            story.hear(processes.read(max(0.0, until - time.time())))
            view.show(story, run)


@contextmanager
def told(story: "Story", run: int, view: "View") -> Iterator[str | None]:
    """What is to happen before a run, told on the screen."""
    what = story.events.get(run - story.first)
    if what is not None:
        story.tell(run, what)
    yield what
    view.show(story, run)
