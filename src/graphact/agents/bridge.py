"""Signals from a topic of Zenoh, and results to one: how an agent meets robots (ROS 2 over Zenoh) and other programs.

Its session is apart from that of the transport. It connects to one endpoint, a router or program on the same machine or
a network that is trusted: what arrives there is believed as a sensor is.
"""

import importlib
import json
from collections import deque
from typing import Any

from graphact._extras import require
from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.agents.signals import NotYet, TextSignals

MOST_BYTES = 2**20


class Bridge:
    """A session of Zenoh that connects to one endpoint, such as ``tcp/127.0.0.1:7447``, and goes on trying.

    Raises:
        ModuleNotFoundError: Zenoh is not installed.
        ValueError: the endpoint is none.
    """

    def __init__(self, endpoint: str) -> None:
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
        self._quality = {"congestion_control": zenoh.CongestionControl.DROP}
        self._publishers: dict[str, Any] = {}

    def publish(self, key: str, event: dict[str, Any]) -> None:
        """Give an event to a topic; never waits."""
        if key not in self._publishers:
            self._publishers[key] = self.session.declare_publisher(key, **self._quality)
        self._publishers[key].put(json.dumps(event, allow_nan=False))

    def close(self) -> None:
        self.session.close()


class TopicSignals(TextSignals):
    """The newest message of a topic is the signal of a run; one that came before the run before is not used again."""

    def __init__(self, bridge: Bridge, key: str, model: Model) -> None:
        super().__init__(model)
        self._newest: deque[str] = deque(maxlen=1)  # filled by a thread of Zenoh
        self._subscriber = bridge.session.declare_subscriber(key, self._hear)

    def _hear(self, sample: Any) -> None:
        if len(sample.payload) <= MOST_BYTES:
            self._newest.append(sample.payload.to_bytes().decode(errors="replace"))

    def take(self, run: int) -> Array:  # noqa: ARG002, a topic knows no runs
        try:
            text = self._newest.popleft()
        except IndexError:
            raise NotYet("no message has come on the topic") from None
        return self._parse("a message", text)
