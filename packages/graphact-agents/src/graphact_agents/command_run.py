"""graphact-agents run: the agent of one node."""

import argparse
import gc
import json
import math
import signal
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphact_agents.addresses import Addresses, status_address
from graphact_agents.agent import Agent, BackToBack, Clocked, Schedule
from graphact_agents.certificates import TLS_FOLDER
from graphact_agents.deployment import Deployment, check_folder
from graphact_agents.disk import write_atomically
from graphact_agents.events import EventWriter
from graphact_agents.log import LOG_NAME, FileLog
from graphact_agents.messages import MAX_RUN
from graphact_agents.network import SOURCES, NetworkFile
from graphact_agents.readings import Readings
from graphact_agents.runs import Timing
from graphact_agents.signals import FileSignals, SensorSignals, Signals, StreamSignals
from graphact_agents.status import Status, Watchdog, memory_use
from graphact_agents.transports.transport import TRANSPORTS, open_transport
from graphact_agents.transports.zenoh import Tls

DEFAULTS: dict[str, Any] = {
    "transport": "zenoh",
    "signals": "-",
    "lead": 0.5,
    "origin": 0.0,
    "slot": 0.18,
    **dict.fromkeys(("repeat", "dynamic", "durable"), False),
}
"""Defaults of options that neither the command line nor the network file sets."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command; what is None is set by the network file, or is as in :data:`DEFAULTS`."""
    add, switch = parser.add_argument, argparse.BooleanOptionalAction
    help_ = "a folder that graphact-agents split has written"
    add("folder", type=Path, nargs="?", metavar="FOLDER", help=help_)
    help_ = "instead: a TOML file with the settings of all nodes (see --node)"
    add("--network", type=Path, metavar="FILE", help=help_)
    add("--node", type=int, metavar="NODE", help="with --network: the number of this node")
    add("--transport", choices=TRANSPORTS, help="default: zenoh")
    source = parser.add_mutually_exclusive_group()
    help_ = ".npy (runs, ..., F) or JSON lines; entry r belongs to run r. - is standard input (default)"
    source.add_argument("--signals", metavar="FILE", help=help_)
    help_ = "command that prints a signal, started before each run"
    source.add_argument("--sensor", metavar="COMMAND", help=help_)
    add("--lead", type=float, help="seconds before a run to start --sensor (default: 0.5)")
    add("--repeat", action=switch, help="begin again at the end of the file")
    help_ = "seconds from run to run, equal at all nodes; 0: one after the other, without a clock "
    add("--period", type=float, metavar="S", help=help_ + "(default: as long as a run may take)")
    add("--origin", type=float, metavar="T", help="Unix time of run 0, equal at all nodes (default: 0)")
    add("--slot", type=float, help="seconds for one round (default: 0.18)")
    add("--runs", type=int, help="end after this many runs, skipped ones included")
    help_ = "encrypt with tls/{ca,cert,key}.pem of the folder (zenoh; default: if the folder has them)"
    add("--tls", action=switch, help=help_)
    help_ = "neighbours come and go: those of a run are among the folder's, and announced it in the slot before it"
    add("--dynamic", action=switch, help=help_)
    help_ = "answer operators on a port of this machine (metrics, health, peers); 0 takes a free one"
    add("--status", metavar="[HOST:]PORT", help=help_)
    add("--durable", action=switch, help="the log survives power failures too")


def run(options: argparse.Namespace) -> int:
    """
    Run the agent of one node. Its signals come from standard input (a JSON array a line), from a file or from a
    command; its results go to standard output, one JSON object a line. It ends when the signals end, or cleanly at
    SIGTERM. Started again it takes part in the next run.

      graphact-agents run nodes/node-7 --sensor 'read-temperature --json' --period 60
      graphact-agents run nodes/node-7 --transport udp --signals temperatures.npy --origin 1750000000 --period 60
      graphact-agents run --network network.toml --node 7

    What the command line says goes before the file of --network; --no-tls takes back what that switches on.
    """
    read_network(options)
    timing = Timing(slot=options.slot)
    check_folder(options.folder)
    deployment = Deployment.load(options.folder)
    model, links = deployment.model, deployment.links
    signals: Signals
    if options.sensor is not None:
        signals = SensorSignals(options.sensor, model, options.lead)
    elif options.signals == "-":
        signals = StreamSignals(sys.stdin.buffer, model)
    else:
        signals = FileSignals(Path(options.signals), model, repeat=options.repeat)
    if model.readings is not None:
        signals = Readings(signals, model, options.folder, waits=options.period == 0)
    longest = (model.rounds + options.dynamic) * options.slot  # a slot for announcements
    period = (longest or 1.0) if options.period is None else options.period
    if period == 0 and links.hears != links.heard_by:
        raise ValueError(
            "--period 0 needs links in both directions: a node that hears fewer than hear it would run ahead"
        )
    if period != 0 and period < longest * (1 - 1e-9):  # 3 rounds of 0.2 s fit into 0.6 s
        raise ValueError(
            f"--period must be at least {longest:g} s, as long as {model.rounds} rounds of "
            f"{options.slot:g} s{' and a slot before them' if options.dynamic else ''} may take, got {period:g}; "
            "0 lets runs follow one another"
        )
    check_origin(options.origin, period)
    schedule: Schedule = BackToBack(options.origin) if period == 0 else Clocked(options.origin, period)
    certificates, tls = options.folder / TLS_FOLDER, None
    if certificates.is_dir() and options.transport == "zenoh" if options.tls is None else options.tls:
        tls = Tls.from_folder(certificates)
    elif options.transport == "zenoh":
        sys.stderr.write("graphact-agents: no TLS: whoever reaches the port of this node can read its values\n")
    serve(options, deployment, signals, schedule, timing, tls)
    return 0


def serve(
    options: argparse.Namespace,
    deployment: Deployment,
    signals: Signals,
    schedule: Schedule,
    timing: Timing,
    tls: Tls | None,
) -> None:
    """Run the agent of a folder until its signals end or SIGTERM or SIGINT comes."""
    folder, links, transport = options.folder, deployment.links, options.transport
    status = None if options.status is None else status_address(options.status)
    addresses = Addresses.load(folder, links.neighbors)
    with ExitStack() as opened:
        events = opened.enter_context(EventWriter())
        opened.callback(signals.close)
        log = opened.enter_context(closing(FileLog(folder / LOG_NAME, durable=options.durable)))
        timely = isinstance(schedule, Clocked)
        network = open_transport(transport, links, addresses, tls, timely=timely)
        opened.callback(network.close)
        agent = Agent(deployment, network, log, signals, schedule, events.write, timing, dynamic=options.dynamic)

        def stop(*_: object) -> None:
            """Let the agent finish its run; a second signal interrupts it."""
            if agent.stopping:
                raise KeyboardInterrupt
            agent.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            opened.callback(signal.signal, number, signal.signal(number, stop))
        watchdog, encrypted = Watchdog(), tls is not None

        def tick() -> None:
            """Do what is due whenever the loop of the agent goes round."""
            watchdog.beat(agent.tally.beat)
            events.flush()

        agent.tick = tick

        def ask() -> Status:
            found = agent.status(transport, encrypted)
            reason = f"standard output is not read, or its disk is full: {events.untold} events were lost"
            trouble = [*found.trouble, reason] if events.untold else found.trouble
            return replace(found, counters={**found.counters, "events_lost": events.lost}, trouble=trouble)

        ready = {"event": "ready", "node": links.node, "epoch": links.epoch_name, "transport": transport}
        ready |= {"encrypted": encrypted, "last_run": log.last_run}
        if status is not None:
            from graphact_agents.status_server import STATUS_NAME, StatusServer  # takes memory that others need not

            server = opened.enter_context(closing(StatusServer(status, ask)))
            ready["status"] = str(server.address)
            write_atomically(folder / STATUS_NAME, json.dumps({"status": str(server.address)}).encode())
        gc.freeze()  # what is there stays: no need to look through it again and again
        used_to_start = time.process_time()
        watchdog.tell("READY=1")
        events.write(ready)
        end = {"event": "end", "node": links.node, "reason": agent.work(options.runs)}
        watchdog.tell("STOPPING=1")
        agent.linger()
        end |= {"counters": agent.counters, "memory": memory_use()}
        events.write(end | {"cpu_seconds": round(time.process_time() - used_to_start, 3)})


def read_network(options: argparse.Namespace) -> None:
    """Set what the file of a network says, where the command line does not; ValueError if there is no folder then."""
    if (options.network is None) != (options.node is None):
        raise ValueError("--network FILE and --node NODE belong together")
    if options.network is not None:
        settings = NetworkFile.load(options.network).settings(options.node)
        if any(getattr(options, name) is not None for name in SOURCES):
            settings = {name: value for name, value in settings.items() if name not in SOURCES}
        for name, value in settings.items():
            if name != "address" and getattr(options, name) is None:
                setattr(options, name, Path(value) if name == "folder" else value)
    for name, value in DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.folder is None:
        raise ValueError("a FOLDER is needed, by itself or as folder in the file of --network")


def check_origin(origin: float, period: float) -> None:
    """Raise ValueError if runs that are counted from there have no numbers."""
    if not math.isfinite(origin):
        raise ValueError(f"--origin must be a finite Unix time, got {origin}")
    if period and not (time.time() - origin) / period < MAX_RUN / 2:
        raise ValueError(f"--origin and --period must give run numbers below 2^62, got {origin:g} and {period:g}")
