"""graphact agents demo: sensors on this machine, one process each, denoise together, in a live view and a figure."""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from graphact import agents
from graphact._checks import check_integer
from graphact._extras import require
from graphact.agents.addresses import free_addresses
from graphact.agents.processes import Processes
from graphact.commands.agents_demo_sensors import SensorNetwork
from graphact.commands.agents_demo_view import Lines, Screen, draw, open_view
from graphact.commands.parser import command, option
from graphact.storage import check_writable

SLOT, PERIOD = 0.1, 0.5
ATTEMPTS = 3


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


def work(network: SensorNetwork, folder: Path, transport: str) -> None:
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


def watch(network: SensorNetwork, processes: Processes, view: Lines | Screen, origin: float) -> None:
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
