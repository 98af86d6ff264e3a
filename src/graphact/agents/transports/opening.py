"""Opening a transport by its name."""

from graphact._checks import check_choice
from graphact.agents.addresses import Addresses
from graphact.agents.links import Links
from graphact.agents.transports.base import Transport
from graphact.agents.transports.zenoh import Tls, ZenohTransport

TRANSPORTS = ("zenoh", "udp")


def open_transport(name: str, links: Links, addresses: Addresses, tls: Tls | None = None) -> Transport:
    """The end of a real network at one node.

    Args:
        name: ``zenoh`` or ``udp``.
        links: the node's place in the network.
        addresses: where it listens and where its neighbours are.
        tls: encrypt the links (Zenoh alone).
    """
    check_choice("transport", name, TRANSPORTS)
    if name == "zenoh":
        return ZenohTransport(links.node, links.epoch, addresses, tls)
    if tls is not None:
        raise ValueError("TLS needs the transport zenoh, got udp")
    from graphact.agents.transports.udp import UdpTransport  # uses poll, which some systems lack

    return UdpTransport(addresses)
