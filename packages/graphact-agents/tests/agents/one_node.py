"""One node with its program, and datagrams for it."""

import numpy as np

from agents.networks import links_of
from graphact_agents import Direction, Exchange, MemoryLog, Node, Timing
from graphact_agents.messages import Kind, Message, Payload, encode


def talk(value, rounds=1, direction=Direction.FORWARD):
    """A program that says value + round in every round, and returns what it heard."""
    heard = []
    for r in range(rounds):
        heard.append(dict((yield Exchange(np.array([value + float(r)]), direction))))
    return [{j: x.item() for j, x in said.items()} for said in heard]


def result_of(node):
    (result,) = node.take_results()
    return result


def said(node, sender, run=0, round_=0, value=5.0, program=1, kind=Kind.DATA, **changes):
    """A datagram for a node, as its neighbour would send it."""
    payload = {"payload": Payload.from_array(np.array([value]))} if kind == Kind.DATA else {}
    fields = dict(sender=sender, recipient=node.links.node, epoch=node.links.epoch, run=run, round=round_)
    message = Message(kind=kind, program_id=program, **(fields | payload | changes))
    return encode(message, node.permitted.keys.get(sender, bytes(32)))


def lone_node(hears=(1,), **options):
    """Node 0 alone, without anybody to answer."""
    place = links_of([(0, j) for j in hears] + [(j, 0) for j in hears], max(hears) + 1)[0]
    return Node(place, MemoryLog(), Timing(slot=1.0, request_after=0.1, backoff=1.5, jitter=1e-9), seed=0, **options)


def pending_bytes(node):
    """The bytes of values that wait for their round."""
    return sum(node._mailbox._bytes.values())
