"""PyG compiles the code of a class of convolutions for its first module, and all others get this code.

Where the first one has a module as its aggregation, the code lacks what others need for sparse edges.
"""

from torch_geometric.nn import SAGEConv

SAGEConv(1, 1)
