"""graphact-agents run: the agent of one node."""

import argparse
import gc
import json
import signal
import sys
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

from graphact_agents.addresses import status_address
from graphact_agents.agent import Agent, BackToBack, Clocked, Schedule
from graphact_agents.arguments import check_integer
from graphact_agents.certificates import TLS_FOLDER, certificate_trouble, read_validity
from graphact_agents.deployment import NODE, Deployment, check_folder
from graphact_agents.disk import one_line, write_atomically
from graphact_agents.events import EventWriter
from graphact_agents.log import LOG_NAME, FileLog
from graphact_agents.messages import MAX_RUN
from graphact_agents.network import DEFAULTS, SETTINGS, SOURCES, check_schedule, check_table, check_value
from graphact_agents.readings import Readings
from graphact_agents.runs import Timing
from graphact_agents.signals import FileSignals, SensorSignals, Signals, StreamSignals
from graphact_agents.status import STATUS_NAME, Status, Watchdog, memory_use
from graphact_agents.transports.transport import TRANSPORTS, open_transport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command; what is None is set by the folder."""
    add, switch = parser.add_argument, argparse.BooleanOptionalAction
    add("folder", type=Path, metavar="FOLDER", help="a folder that graphact-agents deploy has written")
    add("--transport", choices=TRANSPORTS, help="the same at all nodes, as are period, origin, slot, tls and dynamic")
    source = parser.add_mutually_exclusive_group()
    help_ = ".npy (runs, ..., F) or JSON lines; entry r belongs to run r. - is standard input (default)"
    source.add_argument("--signals", metavar="FILE", help=help_)
    help_ = "command that prints a signal, started again before each run"
    source.add_argument("--sensor", metavar="COMMAND", help=help_)
    add("--lead", type=float, help="seconds before a run to start --sensor (default: 0.5)")
    add("--repeat", action=switch, help="start over at the end of the file")
    help_ = "seconds from run to run, the same at all nodes; 0: one after the other, without a clock "
    add("--period", type=float, metavar="S", help=help_ + "(default: as long as a run may take)")
    add("--origin", type=float, metavar="T", help="Unix time of run 0, the same at all nodes (default: 0)")
    add("--slot", type=float, help="seconds for one round (default: 0.18)")
    help_ = "end after this many runs, skipped ones included; without a clock a run waits for its signal"
    add("--runs", type=int, help=help_)
    help_ = "encrypt with tls/{ca,cert,key}.pem of the folder (zenoh)"
    add("--tls", action=switch, help=help_)
    help_ = "neighbours come and go: in the slot before a run, those that take part announce it"
    add("--dynamic", action=switch, help=help_)
    help_ = "answer operators on a port of this machine (metrics, health, peers); 0 takes a free one"
    add("--status", metavar="[HOST:]PORT", help=help_)
    add("--durable", action=switch, help="flush every log record to disk, so that it survives a power failure")


def run(options: argparse.Namespace) -> int:
    """
    Run the agent of one node. Its signals come from standard input (one JSON array per line), from a file or from a
    command; its results go to standard output, one JSON object per line. It ends when the signals end, or cleanly at
    SIGTERM. Started again, it takes part in the next run.

      graphact-agents run nodes/node-7
      graphact-agents run nodes/node-7 --sensor 'read-temperature --json'

    Settings are those of network.toml, which deploy put into the folder; an option overrides the setting of its name.
    """
    if options.runs is not None:
        check_integer("--runs", options.runs, minimum=1)
    check_folder(options.folder)
    deployment = Deployment.load(options.folder)
    apply_settings(options, deployment)
    timing, model, links = Timing(slot=options.slot), deployment.model, deployment.links
    signals: Signals
    if options.sensor is not None:
        signals = SensorSignals(options.sensor, model, options.lead)
    elif options.signals == "-":
        # a file of its own: the interpreter closes sys.stdin at its end, and fails while a thread waits for a line
        signals = StreamSignals(open(0, "rb", closefd=False), model)  # noqa: SIM115
    else:
        signals = FileSignals(Path(options.signals), model, repeat=options.repeat)
    if model.readings is not None:
        signals = Readings(signals, model, waits=options.period == 0)
    period = check_schedule(vars(options), model.rounds, is_symmetric=links.hears == links.heard_by)
    if period and not (time.time() - options.origin) / period < MAX_RUN / 2:
        raise ValueError(f"origin and period must give run numbers below 2^62, got {options.origin:g} and {period:g}")
    schedule: Schedule = BackToBack(options.origin) if period == 0 else Clocked(options.origin, period)
    if options.transport == "zenoh" and not options.tls:
        sys.stderr.write("graphact-agents: no TLS: whoever reaches the port of this node can read its values\n")
    serve(options, deployment, signals, schedule, timing)
    return 0


def serve(
    options: argparse.Namespace,
    deployment: Deployment,
    signals: Signals,
    schedule: Schedule,
    timing: Timing,
) -> None:
    """Run the agent of a folder until its signals end or SIGTERM or SIGINT comes."""
    tls = options.folder / TLS_FOLDER if options.tls else None
    folder, links, transport = options.folder, deployment.links, options.transport
    status = None if options.status is None else status_address(options.status)
    with ExitStack() as opened:
        events = opened.enter_context(EventWriter())
        opened.callback(signals.close)
        log = FileLog(folder / LOG_NAME, links.deployment, durable=options.durable)
        opened.enter_context(closing(log))
        if log.damaged:
            sys.stderr.write(f"graphact-agents: {log.path}: {log.damaged} damaged lines are left out\n")
        timely = isinstance(schedule, Clocked)
        network = open_transport(transport, links, deployment.reached, tls, timely=timely)
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
        validity = None if tls is None else read_validity(tls)

        def tick() -> None:
            """Do what is due whenever the loop of the agent goes round."""
            watchdog.beat(agent.tally.beat)
            events.flush()

        agent.tick = tick

        def ask() -> Status:
            found = agent.status(transport, encrypted)
            reason = f"standard output is not read, or its disk is full: {events.untold} events were lost"
            trouble = [*found.trouble, *[reason] * bool(events.untold)]
            trouble += certificate_trouble(validity, time.time()) if validity is not None else []
            return replace(found, counters={**found.counters, "events_lost": events.lost}, trouble=trouble)

        ready = {"event": "ready", "node": links.node, "deployment": links.deployment, "transport": transport}
        ready |= {"encrypted": encrypted, "last_run": log.last_run}
        with suppress(OSError):  # of an earlier start; whoever checks this agent by its folder would ask there
            (folder / STATUS_NAME).unlink(missing_ok=True)
        if status is not None:
            from graphact_agents.status_server import StatusServer  # takes memory that others need not

            server = opened.enter_context(closing(StatusServer(status, ask)))
            ready["status"] = str(server.address)
            try:
                write_atomically(folder / STATUS_NAME, json.dumps({"status": str(server.address)}).encode())
            except OSError as error:  # such as a full disk, which may have room again
                sys.stderr.write(f"graphact-agents: {one_line(error)}; status does not find this agent by its folder\n")
        gc.freeze()  # what is there stays: no need to look through it again and again
        used_to_start = time.process_time()
        watchdog.tell("READY=1")
        events.write(ready)
        end = {"event": "end", "node": links.node, "reason": agent.work(options.runs)}
        watchdog.tell("STOPPING=1")
        agent.linger()
        end |= {"counters": agent.counters, "memory": memory_use()}
        events.write(end | {"cpu_seconds": round(time.process_time() - used_to_start, 3)})


def apply_settings(options: argparse.Namespace, deployment: Deployment) -> None:
    """Set what the folder of a node says, or the default, where the command line says nothing."""
    settings = check_table(options.folder / NODE, dict(deployment.settings), SETTINGS, "settings")
    if any(getattr(options, name) is not None for name in SOURCES):
        settings = {name: value for name, value in settings.items() if name not in SOURCES}
    if options.transport == "udp" and options.tls is None:
        options.tls = False
    for name in SETTINGS:
        if getattr(options, name) is None:
            setattr(options, name, settings.get(name, DEFAULTS.get(name)))
        if getattr(options, name) is not None:
            check_value(name, getattr(options, name))
