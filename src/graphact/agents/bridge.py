"""Signals from a topic of Zenoh, and results to one: how an agent meets robots (ROS 2 over Zenoh) and other programs.

Its session is apart from that of the transport. It connects to one endpoint, a router or program on the same machine or
a network that is trusted: what arrives there is believed as a sensor is.
"""

import importlib
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from graphact._extras import require
from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.agents.signals import NotYet, TextSignals

MOST_BYTES = 2**20


class Bridge:
    """A session of Zenoh that connects to one endpoint, such as ``tcp/127.0.0.1:7447``, and goes on trying.

    ``results`` is the topic that it gives events to, if any.

    Raises:
        ModuleNotFoundError: Zenoh is not installed.
        ValueError: the endpoint or the topic is none.
    """

    def __init__(self, endpoint: str, results: str | None = None) -> None:
        require("the bridge needs", "zenoh")
        zenoh = importlib.import_module("zenoh")
        wanted = {
            "mode": "peer",
            "connect/endpoints": [endpoint],
            "connect/exit_on_failure": False,
            "connect/timeout_ms": -1,
            "listen/endpoints": [],
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
        }
        settings = zenoh.Config()
        try:
            for name, value in wanted.items():
                settings.insert_json5(name, json.dumps(value))
            self.session = zenoh.open(settings)
        except zenoh.ZError as error:
            raise ValueError(f"bridge must be an endpoint such as tcp/127.0.0.1:7447, got {endpoint!r}") from error
        self._publisher, drop = None, zenoh.CongestionControl.DROP
        if results is not None:
            self._publisher = self.session.declare_publisher(self._topic(results), congestion_control=drop)

    def _topic(self, key: str) -> Any:
        zenoh = importlib.import_module("zenoh")
        try:
            return zenoh.KeyExpr(key)
        except zenoh.ZError as error:
            self.close()
            raise ValueError(f"a topic of Zenoh must be a key such as robot/7/answer, got {key!r}") from error

    def subscribe(self, key: str, hear: Callable[[Any], None]) -> Any:
        """Let messages of a topic be heard, by a thread of Zenoh; ValueError if the topic is none."""
        return self.session.declare_subscriber(self._topic(key), hear)

    def publish(self, event: dict[str, Any]) -> None:
        """Give an event to the topic of results; never waits."""
        if self._publisher is not None:
            self._publisher.put(json.dumps(event, allow_nan=False))

    def close(self) -> None:
        self.session.close()


class TopicSignals(TextSignals):
    """The newest message of a topic is the signal of a run; one that came before the run before is not used again."""

    def __init__(self, bridge: Bridge, key: str, model: Model) -> None:
        super().__init__(model)
        self._newest: deque[str] = deque(maxlen=1)  # filled by a thread of Zenoh
        self._subscriber = bridge.subscribe(key, self._hear)

    def _hear(self, sample: Any) -> None:
        if len(sample.payload) <= MOST_BYTES:
            self._newest.append(sample.payload.to_bytes().decode(errors="replace"))

    def take(self, run: int) -> Array:  # noqa: ARG002, a topic knows no runs
        try:
            text = self._newest.popleft()
        except IndexError:
            raise NotYet("no message has come on the topic") from None
        return self._parse("a message", text)
