"""graphact agents run: the agent of one node, as a process of its own."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphact.commands.options import add_shared

if TYPE_CHECKING:
    from graphact.agents import Deployment
    from graphact.agents.agent import Schedule
    from graphact.agents.signals import Signals

DESCRIPTION = """\
Run the agent of one node. Its signals come from standard input (a JSON array a line), from a file or from a command;
its results go to standard output, one JSON object a line. It ends when the signals end, or cleanly at SIGTERM.
Started again it takes part in the next run.

  graphact agents run nodes/node-7 --sensor 'read-temperature --json' --period 60
  graphact agents run nodes/node-7 --transport udp --signals temperatures.npy --origin 1750000000 --period 60
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run the agent of one node",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder that graphact agents split has written")
    parser.add_argument("--transport", choices=("zenoh", "udp"), default="zenoh", help="default: zenoh")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--signals",
        metavar="FILE",
        default="-",
        help=".npy (runs, ..., F) or JSON lines; entry r belongs to run r. - is standard input (default)",
    )
    source.add_argument("--sensor", metavar="COMMAND", help="command that prints a signal, started before each run")
    parser.add_argument("--lead", type=float, default=0.5, help="seconds before a run to start --sensor (default: 0.5)")
    parser.add_argument("--repeat", action="store_true", help="begin again at the end of the file")
    parser.add_argument(
        "--period",
        type=float,
        metavar="S",
        help="seconds from run to run, equal at all nodes; 0: one after the other, without a clock "
        "(default: as long as a run may take)",
    )
    parser.add_argument(
        "--origin", type=float, default=0.0, metavar="T", help="Unix time of run 0, equal at all nodes (default: 0)"
    )
    add_shared(parser, "--slot")
    parser.add_argument("--runs", type=int, help="end after this many runs")
    parser.add_argument("--tls", action="store_true", help="encrypt with tls/{ca,cert,key}.pem of the folder (zenoh)")
    parser.add_argument("--durable", action="store_true", help="the log survives power failures too")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Read the folder, serve."""
    from graphact.agents.agent import serve
    from graphact.agents.deployment import Deployment
    from graphact.agents.settings import Timing
    from graphact.agents.transports.zenoh import Tls

    timing, deployment = Timing(slot=options.slot), Deployment.load(options.folder)
    serve(
        options.folder,
        deployment,
        make_signals(options, deployment),
        make_schedule(options, deployment),
        transport=options.transport,
        timing=timing,
        tls=Tls.of_folder(options.folder / "tls") if options.tls else None,
        durable=options.durable,
        runs=options.runs,
    )
    return 0


def make_signals(options: argparse.Namespace, deployment: "Deployment") -> "Signals":
    """The source of signals that the options name."""
    from graphact.agents.signals import FileSignals, SensorSignals, StreamSignals

    if options.sensor is not None:
        return SensorSignals(options.sensor, deployment.model, options.lead)
    if options.signals == "-":
        return StreamSignals(sys.stdin, deployment.model)
    return FileSignals(Path(options.signals), deployment.model, repeat=options.repeat)


def make_schedule(options: argparse.Namespace, deployment: "Deployment") -> "Schedule":
    """The schedule that the options name.

    Raises:
        ValueError: a run may last longer than the period, or runs follow one another over one-way links.
    """
    from graphact.agents.agent import BackToBack, Clocked

    longest = deployment.model.rounds * options.slot
    period = (longest or 1.0) if options.period is None else options.period
    if period == 0:
        if deployment.links.hears != deployment.links.heard_by:
            raise ValueError(
                "--period 0 needs links in both directions: a node that hears fewer than hear it would run ahead"
            )
        return BackToBack(options.origin)
    if period < longest:
        raise ValueError(
            f"--period must be at least {longest:g} s, as long as {deployment.model.rounds} rounds of "
            f"{options.slot:g} s may take, got {period:g}; 0 lets runs follow one another"
        )
    return Clocked(options.origin, period)
