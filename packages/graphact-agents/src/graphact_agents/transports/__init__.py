"""Transports of datagrams: one interface, several networks."""
