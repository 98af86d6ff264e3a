"""The process of one agent: its folder, signals of the operating system, events as lines of JSON."""

import gc
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from graphact.agents.addresses import Addresses
from graphact.agents.agent import Agent
from graphact.agents.deployment import Deployment
from graphact.agents.log import FileLog
from graphact.agents.schedule import Schedule
from graphact.agents.settings import Timing
from graphact.agents.signals import Signals
from graphact.agents.transports.opening import open_transport
from graphact.agents.transports.zenoh import Tls

LOG_NAME = "log.jsonl"


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
    runs: int | None = None,
) -> None:
    """Run the agent of a folder until its signals end or SIGTERM or SIGINT comes, and write events to standard output.

    Args:
        folder: where ``addresses.json`` is and ``log.jsonl`` comes.
        deployment: what was loaded from it.
        signals: where the node's signals come from.
        schedule: when runs begin.
        transport: ``zenoh`` or ``udp``.
        timing: how long it waits for neighbours.
        tls: encrypt the links.
        durable: write the log through to the disk.
        runs: end after this many runs.
    """
    links = deployment.links
    network = open_transport(transport, links, Addresses.load(folder, links.neighbors), tls)
    log = FileLog(folder / LOG_NAME, durable=durable)
    agent = Agent(deployment, network, log, signals, schedule, write_event, timing)
    before = {number: signal.signal(number, stop_at(agent)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        gc.freeze()  # what is there stays: no need to look through it again and again
        used_to_start = time.process_time()
        ready = {"event": "ready", "node": links.node, "transport": transport, "last_run": log.last_run}
        write_event({**ready, "ignored_records": log.ignored} if log.ignored else ready)
        reason = agent.work(runs)
        agent.linger()
        write_event(
            {
                "event": "end",
                "node": links.node,
                "reason": reason,
                "counters": asdict(agent.node.counters),
                "cpu_seconds": round(time.process_time() - used_to_start, 3),
                "memory": memory_use(),
            }
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.close()
        network.close()
        log.close()


def stop_at(agent: Agent) -> Any:
    """A handler that lets the agent finish its run; a second signal interrupts it."""

    def handler(number: int, frame: FrameType | None) -> None:  # noqa: ARG001, the interface of signal
        if agent.stopping:
            raise KeyboardInterrupt
        agent.stop()

    return handler


def write_event(event: dict[str, Any]) -> None:
    """One line of JSON on standard output, at once."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def memory_use() -> dict[str, float]:
    """MiB of memory of this process: the largest it ever held, and what it holds for itself alone (on Linux)."""
    files = {"peak": ("status", "VmHWM"), "private": ("smaps_rollup", "Private_")}
    use = {}
    for name, (file, label) in files.items():
        path = Path("/proc/self") / file
        lines = path.read_text().splitlines() if path.is_file() else []
        use[name] = round(sum(int(line.split()[1]) for line in lines if line.startswith(label)) / 1024, 1)
    return use
