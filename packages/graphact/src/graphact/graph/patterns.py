"""What the pattern of the edges gives: the neighbours that walks of k edges lead to, and an order of the nodes."""

import numpy as np
import torch
from torch import Tensor

from graphact._checks import check_integer
from graphact.graph.neighborhoods import Neighborhoods

MOST_WALKS = 500_000_000


def hop_pattern(incoming_rowptr: Tensor, incoming_col: Tensor, hops: int, closed: bool) -> Neighborhoods:
    """The nonzero pattern of A^hops, where A is the pattern of the edges (plus the identity when closed)."""
    import scipy.sparse

    check_integer("hops", hops, minimum=1)
    n = incoming_rowptr.numel() - 1
    rowptr, col = incoming_rowptr.cpu().numpy(), incoming_col.cpu().numpy()
    one_hop = scipy.sparse.csr_array((np.ones(len(col), dtype=bool), col, rowptr), shape=(n, n))
    if closed:
        one_hop = one_hop + scipy.sparse.eye_array(n, dtype=bool, format="csr")
    reached = one_hop.copy()
    for _ in range(hops - 1):
        at_most = int(np.diff(one_hop.indptr).astype(np.int64)[reached.indices].sum())
        if at_most > MOST_WALKS:
            raise ValueError(
                f"hops={hops} would follow {at_most:,} walks on this graph, more than {MOST_WALKS:,}: use fewer hops, "
                "or a graph-adaptive activation, which needs one-hop neighbours only"
            )
        reached = reached @ one_hop
    reached.sort_indices()
    found = (torch.from_numpy(part.astype(np.int64)) for part in (reached.indptr, reached.indices))
    return Neighborhoods.from_rowptr(*found).to(incoming_col.device)


def order_of_cuthill_mckee(target: Tensor, source: Tensor, num_nodes: int) -> Tensor:
    """The nodes in the order of Cuthill and McKee, reversed, in which the ends of an edge stand near each other."""
    import scipy.sparse

    ends = (target.cpu().numpy(), source.cpu().numpy())
    ones = np.ones(len(ends[0]), dtype=np.int8)
    pattern = scipy.sparse.csr_array((ones, ends), shape=(num_nodes, num_nodes))
    found = scipy.sparse.csgraph.reverse_cuthill_mckee(pattern + pattern.T, symmetric_mode=True)
    return torch.from_numpy(found.astype(np.int64)).to(target.device)
