"""The neighbours several hops away, found by processes of which none holds the whole graph."""

from itertools import pairwise

import numpy as np
import scipy.sparse
import torch
import torch.distributed as dist

from graphact.graph.patterns import MOST_WALKS
from graphact.scaleout.exchange import HaloPlan, exchange_rows
from graphact.scaleout.halo_split import HaloSplit, LocalIndex, split_halo
from graphact.scaleout.partition import Array, LocalRows, Part


def split_k_hop(part: Part, plan: HaloPlan | None, hops: int, closed: bool) -> HaloSplit:
    """A split whose k-th graphs hold the neighbours that walks of k edges lead to, k = 1..hops.

    The lists grow hop by hop: those of hop k + 1 are the lists of hop k of all neighbours, of which the neighbours held
    elsewhere send theirs. One exchange of values then serves all hops.
    """
    one_hop = _pattern(part, closed)
    nodes, owner = part.known.astype(np.int64), part.owner.astype(np.int64)
    lists = [one_hop]
    for hop in range(2, hops + 1):
        nodes, owner, columns, beyond = _next_lists(part, plan, lists[-1], nodes, owner)
        lists = [_widen(rows, columns, len(nodes)) for rows in lists]
        _check_walks(one_hop, beyond, hop, plan)
        lists.append((one_hop @ beyond).astype(bool))
    for rows in lists:
        rows.sort_indices()
    sets = [LocalRows(rows.indptr, rows.indices, np.ones(rows.nnz, part.rows.weight.dtype), None) for rows in lists]
    return split_halo(LocalIndex.from_owner(owner, part.rank), sets, _plan(part, plan, nodes, owner))


def _pattern(part: Part, closed: bool) -> scipy.sparse.csr_array:
    """The pattern of the rows held here, over the known nodes."""
    nodes, known = len(part.rows.rowptr) - 1, len(part.known)
    ones = np.ones(len(part.rows.col), bool)
    rows = scipy.sparse.csr_array((ones, part.rows.col, part.rows.rowptr), shape=(nodes, known))
    if closed:
        held = np.flatnonzero(part.owner == part.rank)
        itself = scipy.sparse.csr_array((np.ones(nodes, bool), held, np.arange(nodes + 1)), shape=(nodes, known))
        rows = (rows + itself).tocsr()
    return rows


def _next_lists(
    part: Part, plan: HaloPlan | None, rows: scipy.sparse.csr_array, nodes: Array, owner: Array
) -> tuple[Array, Array, Array, scipy.sparse.csr_array]:
    """The lists of all known nodes: those held here, and those that their owners send.

    Returns the nodes that occur in them, their owners, the positions of the former nodes among these, and the lists
    over these nodes.
    """
    lengths, entries = np.diff(rows.indptr), rows.indices
    held = part.owner == part.rank
    pairs = np.stack([nodes[entries], owner[entries]], axis=1)
    if plan is None:
        halo_lengths, halo_pairs = np.empty(0, np.int64), np.empty((0, 2), np.int64)
    else:
        halo_lengths, halo_pairs = _send_lists(plan, rows, pairs)
    everything = np.concatenate([np.stack([nodes, owner], axis=1), halo_pairs])
    all_nodes, first = np.unique(everything[:, 0], return_index=True)
    position = np.empty(len(part.known), np.int64)  # of each known node's list, among held ones, then the halo
    position[held] = np.arange(len(lengths))
    position[~held] = len(lengths) + LocalIndex.from_owner(part.owner, part.rank).halo_position[~held]
    rowptr = np.concatenate([[0], np.cumsum(np.concatenate([lengths, halo_lengths]))])
    columns = np.searchsorted(all_nodes, np.concatenate([pairs[:, 0], halo_pairs[:, 0]]))
    stacked = scipy.sparse.csr_array(
        (np.ones(len(columns), bool), columns, rowptr), shape=(len(rowptr) - 1, len(all_nodes))
    )
    return all_nodes, everything[first, 1], np.searchsorted(all_nodes, nodes), stacked[position]


def _send_lists(plan: HaloPlan, rows: scipy.sparse.csr_array, pairs: Array) -> tuple[Array, Array]:
    """Send the lists of the nodes that others hear; return the lengths and entries of the lists that come."""
    device = plan.send.device
    send = plan.send.cpu().numpy()
    lengths = np.diff(rows.indptr)[send].astype(np.int64)
    starts = np.repeat(rows.indptr[send] - (np.cumsum(lengths) - lengths), lengths)
    content = pairs[np.arange(lengths.sum()) + starts]
    ends = np.cumsum([0, *plan.send_counts])
    entry_counts = [int(lengths[a:b].sum()) for a, b in pairwise(ends)]
    arrived, _ = exchange_rows(torch.from_numpy(lengths).to(device), list(plan.send_counts), plan.group)
    entries, _ = exchange_rows(torch.from_numpy(content).to(device), entry_counts, plan.group)
    return arrived.cpu().numpy(), entries.cpu().numpy()


def _widen(rows: scipy.sparse.csr_array, columns: Array, width: int) -> scipy.sparse.csr_array:
    """The same lists over more nodes."""
    return scipy.sparse.csr_array((rows.data, columns[rows.indices], rows.indptr), shape=(rows.shape[0], width))


def _check_walks(
    one_hop: scipy.sparse.csr_array, beyond: scipy.sparse.csr_array, hop: int, plan: HaloPlan | None
) -> None:
    """Raise if the lists would not fit into memory, on all processes if on any."""
    at_most = int(np.diff(beyond.indptr).astype(np.int64)[one_hop.indices].sum())
    if plan is not None:
        most = torch.tensor(at_most, device=plan.send.device)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=plan.group)
        at_most = int(most)
    if at_most > MOST_WALKS:
        raise ValueError(
            f"hops={hop} would follow {at_most:,} walks from the nodes of one process, more than {MOST_WALKS:,}: use "
            "fewer hops, or a graph-adaptive activation, which needs one-hop neighbours only"
        )


def _plan(part: Part, plan: HaloPlan | None, nodes: Array, owner: Array) -> HaloPlan | None:
    """Ask the owners for the values of all these nodes, and learn which values others ask for."""
    if plan is None:
        return None
    wanted = np.lexsort((nodes, owner))
    wanted = wanted[owner[wanted] != part.rank]
    halo_counts = np.bincount(owner[wanted], minlength=part.parts).tolist()
    asked, send_counts = exchange_rows(torch.from_numpy(nodes[wanted]).to(plan.send.device), halo_counts, plan.group)
    send = torch.from_numpy(np.searchsorted(part.nodes, asked.cpu().numpy())).to(plan.send.device)
    return HaloPlan(send, tuple(send_counts), tuple(halo_counts), plan.group, plan.traffic)
