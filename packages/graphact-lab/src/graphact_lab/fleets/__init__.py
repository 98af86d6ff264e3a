"""Many classifiers trained as one: fleets on the nodes of a graph, and on many graphs."""
