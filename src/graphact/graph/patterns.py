"""The neighbours that walks of k edges lead to."""

import torch
from torch import Tensor

from graphact._checks import check_integer
from graphact.graph.neighborhoods import Neighborhoods

MOST_WALKS = 500_000_000


def hop_pattern(incoming_rowptr: Tensor, incoming_col: Tensor, hops: int, closed: bool) -> Neighborhoods:
    """The nonzero pattern of A^hops, where A is the pattern of the edges (plus the identity when closed)."""
    import numpy as np
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
