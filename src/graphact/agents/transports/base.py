"""What every transport does, and no more: reliability, order and authenticity are the node's business."""

from typing import Protocol


class Transport(Protocol):
    """The end of the network at one node.

    A transport may lose, delay, repeat or reorder datagrams. It must not deliver them in pieces, and should not let
    anybody but neighbours in, though the node survives if it does.
    """

    def send(self, to: int, datagram: bytes) -> None:
        """Hand a datagram for a neighbour to the network.

        Never waits (a full queue loses it) and never fails because the neighbour is away.

        Raises:
            KeyError: ``to`` is not a neighbour.
        """

    def receive(self, timeout: float) -> bytes | None:
        """The next datagram, waiting at most ``timeout`` seconds (0 looks only); None if none came."""

    def close(self) -> None:
        """Leave the network; closing twice does no harm."""
