"""The neighbours several hops away, found together by processes of which none knows the whole graph."""

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
import torch
import torch.distributed as dist

from graphact.graph.patterns import MOST_WALKS
from graphact.scaleout.exchange import HaloPlan, exchange_rows
from graphact.scaleout.part import Part
from graphact.scaleout.pieces import Known, Pieces, Rows, cut

Array = np.ndarray[Any, Any]


def reached(part: Part, plan: HaloPlan | None, hops: int, closed: bool) -> Pieces:
    """Pieces whose k-th graphs hold the neighbours that walks of k edges lead to, k = 1..hops.

    The lists grow hop by hop: those of hop k + 1 are the lists of hop k of all neighbours, of which the neighbours held
    elsewhere send theirs. One exchange of values then serves all hops.
    """
    one_hop = matrix_of(part, closed)
    names, owners = part.known.astype(np.int64), part.owner.astype(np.int64)
    lists = [one_hop]
    for hop in range(2, hops + 1):
        names, owners, columns, beyond = next_lists(part, plan, lists[-1], names, owners)
        lists = [widen(rows, columns, len(names)) for rows in lists]
        check_walks(one_hop, beyond, hop, plan)
        lists.append((one_hop @ beyond).astype(bool))
    for rows in lists:
        rows.sort_indices()
    sets = [Rows(rows.indptr, rows.indices, np.ones(rows.nnz, part.rows.weight.dtype), None) for rows in lists]
    return cut(Known.of(owners, part.rank), sets, plan_for(part, plan, names, owners))


def matrix_of(part: Part, closed: bool) -> scipy.sparse.csr_array:
    """The pattern of the rows held here, over the known nodes."""
    nodes, known = len(part.rows.pointers) - 1, len(part.known)
    ones = np.ones(len(part.rows.members), bool)
    rows = scipy.sparse.csr_array((ones, part.rows.members, part.rows.pointers), shape=(nodes, known))
    if closed:
        held = np.flatnonzero(part.owner == part.rank)
        itself = scipy.sparse.csr_array((np.ones(nodes, bool), held, np.arange(nodes + 1)), shape=(nodes, known))
        rows = (rows + itself).tocsr()
    return rows


def next_lists(
    part: Part, plan: HaloPlan | None, rows: scipy.sparse.csr_array, names: Array, owners: Array
) -> tuple[Array, Array, Array, scipy.sparse.csr_array]:
    """The lists of all known nodes: those held here, and those that their owners send.

    Returns the nodes that occur in them, their owners, the positions of the former nodes among these, and the lists
    over these nodes.
    """
    lengths, entries = np.diff(rows.indptr), rows.indices
    held = part.owner == part.rank
    pairs = np.stack([names[entries], owners[entries]], axis=1)
    if plan is None:
        halo_lengths, halo_pairs = np.empty(0, np.int64), np.empty((0, 2), np.int64)
    else:
        halo_lengths, halo_pairs = send_lists(plan, rows, pairs)
    everything = np.concatenate([np.stack([names, owners], axis=1), halo_pairs])
    all_names, first = np.unique(everything[:, 0], return_index=True)
    all_owners = everything[first, 1]
    position = np.empty(len(part.known), np.int64)  # of each known node's list, among held ones, then the halo
    position[held] = np.arange(len(lengths))
    position[~held] = len(lengths) + Known.of(part.owner, part.rank).halo_position[~held]
    pointers = np.concatenate([[0], np.cumsum(np.concatenate([lengths, halo_lengths]))])
    columns = np.searchsorted(all_names, np.concatenate([pairs[:, 0], halo_pairs[:, 0]]))
    stacked = scipy.sparse.csr_array(
        (np.ones(len(columns), bool), columns, pointers), shape=(len(pointers) - 1, len(all_names))
    )
    return all_names, all_owners, np.searchsorted(all_names, names), stacked[position]


def send_lists(plan: HaloPlan, rows: scipy.sparse.csr_array, pairs: Array) -> tuple[Array, Array]:
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


def widen(rows: scipy.sparse.csr_array, columns: Array, width: int) -> scipy.sparse.csr_array:
    """The same lists over more nodes."""
    return scipy.sparse.csr_array((rows.data, columns[rows.indices], rows.indptr), shape=(rows.shape[0], width))


def check_walks(
    one_hop: scipy.sparse.csr_array, beyond: scipy.sparse.csr_array, hop: int, plan: HaloPlan | None
) -> None:
    """Refuse lists that would not fit into memory, on all processes if on any."""
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


def plan_for(part: Part, plan: HaloPlan | None, names: Array, owners: Array) -> HaloPlan | None:
    """Ask the owners for the values of all these nodes, and hear what others ask for."""
    if plan is None:
        return None
    wanted = np.lexsort((names, owners))
    wanted = wanted[owners[wanted] != part.rank]
    halo_counts = np.bincount(owners[wanted], minlength=part.parts).tolist()
    asked, send_counts = exchange_rows(torch.from_numpy(names[wanted]).to(plan.send.device), halo_counts, plan.group)
    send = torch.from_numpy(np.searchsorted(part.nodes, asked.cpu().numpy())).to(plan.send.device)
    return HaloPlan(send, tuple(send_counts), tuple(halo_counts), plan.group, plan.traffic)
