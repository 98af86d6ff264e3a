"""How the hot functions run: the plain reference, and the operators that make it known to torch."""
