"""The process of an agent: what it opens, and the signals of the system that end it."""

import gc
import json
import signal
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from graphact_agents.addresses import Address, Addresses
from graphact_agents.agent import Agent, Clocked, Schedule
from graphact_agents.deployment import Deployment
from graphact_agents.disk import write_atomically
from graphact_agents.events import EventWriter
from graphact_agents.log import LOG_NAME, FileLog
from graphact_agents.runs import Timing
from graphact_agents.signals import Signals
from graphact_agents.status import Status, Watchdog, memory_use
from graphact_agents.status_server import StatusServer
from graphact_agents.transports.transport import open_transport
from graphact_agents.transports.zenoh import Tls

STATUS_NAME = "status.json"


def serve(
    folder: Path,
    deployment: Deployment,
    signals: Signals,
    schedule: Schedule,
    *,
    transport: str,
    timing: Timing | None = None,
    tls: Tls | None = None,
    durable: bool = False,
    dynamic: bool = False,
    status: Address | None = None,
    runs: int | None = None,
) -> None:
    """Run the agent of a folder until its signals end or SIGTERM or SIGINT comes; events go to standard output.

    ``status`` is where it answers its operators
    (:class:`~graphact_agents.status_server.StatusServer`); the others are as in
    :func:`~graphact_agents.transports.transport.open_transport` and :class:`~graphact_agents.agent.Agent`.
    """
    links, addresses = deployment.links, Addresses.load(folder, deployment.links.neighbors)
    with ExitStack() as opened:
        events = opened.enter_context(EventWriter())
        opened.callback(signals.close)
        log = opened.enter_context(closing(FileLog(folder / LOG_NAME, durable=durable)))
        timely = isinstance(schedule, Clocked)
        network = open_transport(transport, links, addresses, tls, timely=timely)
        opened.callback(network.close)
        agent = Agent(
            deployment,
            network,
            log,
            signals,
            schedule,
            events.write,
            timing,
            dynamic=dynamic,
        )

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
            server = opened.enter_context(closing(StatusServer(status, ask)))
            ready["status"] = str(server.address)
            write_atomically(folder / STATUS_NAME, json.dumps({"status": str(server.address)}).encode())
        gc.freeze()  # what is there stays: no need to look through it again and again
        used_to_start = time.process_time()
        watchdog.tell("READY=1")
        events.write({**ready, "ignored_records": log.ignored} if log.ignored else ready)
        end = {"event": "end", "node": links.node, "reason": agent.work(runs)}
        watchdog.tell("STOPPING=1")
        agent.linger()
        end |= {"counters": agent.counters, "memory": memory_use()}
        events.write(end | {"cpu_seconds": round(time.process_time() - used_to_start, 3)})
