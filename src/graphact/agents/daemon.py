"""The process of an agent: what it opens, the signals of the system that end it, and its events on standard output."""

import gc
import json
import os
import signal
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

from graphact.agents.addresses import Address, Addresses
from graphact.agents.agent import Agent, Event, Schedule
from graphact.agents.bridge import Bridge
from graphact.agents.changes import Changes, first_run
from graphact.agents.deployment import Deployment
from graphact.agents.log import FileLog
from graphact.agents.runs import Timing
from graphact.agents.signals import Signals
from graphact.agents.status import StatusServer, Watchdog, memory_use
from graphact.agents.transports.base import open_transport
from graphact.agents.transports.zenoh import Tls
from graphact.storage import write_atomically

LOG_NAME = "log.jsonl"
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
    encrypt: bool = False,
    mtu: int | None = None,
    durable: bool = False,
    dynamic: bool = False,
    status: Address | None = None,
    bridge: Bridge | None = None,
    results: str | None = None,
    runs: int | None = None,
) -> None:
    """Run the agent of a folder until its signals end or SIGTERM or SIGINT comes; events go to standard output.

    They also go to the topic ``results`` of a ``bridge``. ``status`` is where it answers its operators
    (:class:`~graphact.agents.status.StatusServer`); the others are as in
    :func:`~graphact.agents.transports.base.open_transport` and :class:`~graphact.agents.agent.Agent`.
    """
    links, addresses = deployment.links, Addresses.load(folder, deployment.links.neighbors)
    with ExitStack() as opened:
        if bridge is not None:
            opened.callback(bridge.close)
        opened.callback(signals.close)

        def report(event: Event) -> None:
            write_event(event)
            if bridge is not None and results is not None:
                bridge.publish(results, event)

        log = opened.enter_context(closing(FileLog(folder / LOG_NAME, durable=durable)))
        network = open_transport(transport, links, addresses, tls, encrypt=encrypt, mtu=mtu)
        opened.callback(network.close)
        agent = Agent(
            deployment,
            network,
            log,
            signals,
            schedule,
            report,
            timing,
            dynamic=dynamic,
            changes=Changes(folder),
            addresses=addresses,
            first=first_run(folder),
        )

        def stop(*_: object) -> None:
            """Let the agent finish its run; a second signal interrupts it."""
            if agent.stopping:
                raise KeyboardInterrupt
            agent.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            opened.callback(signal.signal, number, signal.signal(number, stop))
        agent.watchdog = Watchdog()
        encrypted = encrypt or tls is not None
        ready = {"event": "ready", "node": links.node, "epoch": links.epoch_name, "transport": transport}
        ready |= {"encrypted": encrypted, "last_run": log.last_run}
        if status is not None:
            server = opened.enter_context(closing(StatusServer(status, lambda: agent.status(transport, encrypted))))
            ready["status"] = str(server.address)
            write_atomically(folder / STATUS_NAME, json.dumps({"status": str(server.address)}).encode())
        gc.freeze()  # what is there stays: no need to look through it again and again
        used_to_start = time.process_time()
        agent.watchdog.tell("READY=1")
        write_event({**ready, "ignored_records": log.ignored} if log.ignored else ready)
        end = {"event": "end", "node": links.node, "reason": agent.work(runs)}
        agent.watchdog.tell("STOPPING=1")
        agent.linger()
        agent.count()
        end |= {"counters": agent.counted, "totals": agent.totals, "memory": memory_use()}
        write_event(end | {"cpu_seconds": round(time.process_time() - used_to_start, 3)})


def write_event(event: Event) -> None:
    """One line of JSON on standard output, at once; OSError if nobody reads it any more."""
    try:
        sys.stdout.write(json.dumps(event | {"time": round(time.time(), 3)}, allow_nan=False) + "\n")
        sys.stdout.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left cannot fail again at the end
        raise OSError("nobody reads the results on standard output any more") from error
