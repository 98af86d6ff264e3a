"""What goes wrong in a simulated network."""

from dataclasses import dataclass, fields

from graphact._checks import check_probability

TIMES = ("delay", "jitter", "downtime", "partition_time", "skew")


@dataclass(frozen=True)
class Faults:
    """Probabilities (0 to 1) and times (seconds) of faults; without arguments nothing goes wrong.

    Args:
        loss: a datagram is lost.
        link_loss: a link is lost for a whole run, in both directions; the paper's model of link loss.
        delay: how long a datagram travels at least.
        jitter: it travels up to this much longer, at random, which also reorders.
        reorder: a datagram is held back by ten times delay + jitter.
        duplicate: a datagram comes twice.
        corrupt: one bit of a datagram is flipped.
        replay: a stranger sends a datagram again that it recorded earlier, also in other runs.
        forge: a stranger sends a datagram like one it saw with other values, without knowing the key.
        crash: a node dies at a random moment of a run, forgetting everything but its log.
        downtime: it is back after at most this time.
        partition: for a part of a run the network falls into two halves that do not hear each other.
        partition_time: how long at most.
        skew: clocks and starts of nodes differ by at most this much.
    """

    loss: float = 0.0
    link_loss: float = 0.0
    delay: float = 0.001
    jitter: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    replay: float = 0.0
    forge: float = 0.0
    crash: float = 0.0
    downtime: float = 1.0
    partition: float = 0.0
    partition_time: float = 1.0
    skew: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in TIMES:
                check_probability(field.name, value)
            elif not 0 <= value < float("inf"):
                raise ValueError(f"{field.name} must be a finite time of at least 0 seconds, got {value}")
