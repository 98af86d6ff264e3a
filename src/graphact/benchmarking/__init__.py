"""How fast activations run on a graph, beside what else could be used, and how near they come to the device's limit."""
