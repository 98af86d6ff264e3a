"""How datagrams travel: one interface, several networks."""
