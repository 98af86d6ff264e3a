"""Data sets for graph classification: many small graphs side by side, a class for each, and nested splits."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphact._checks import check_choice, check_integer
from graphact.graph import Graph
from graphact.storage import DAMAGES, one_line
from graphact_lab.data.download import DataError, PathLike, locate
from graphact_lab.splits import Split, data_generator

GRAPH_SETS = {"MUTAG": "MUTAG", "PTC_MR": "PTC_MR", "PROTEINS": "PROTEINS_full", "NCI1": "NCI1", "NCI109": "NCI109"}
GIVEN_SPLITS = ("PROTEINS", "NCI1")
FOLDS = 10


@dataclass(frozen=True, eq=False)
class GraphSet:
    """Graphs that have classes.

    Attributes:
        name: one of ``GRAPH_SETS``.
        x: ``(N, F)``, float32; the label of each node of all graphs, one-hot.
        y: ``(G,)``, int64; the class of each graph.
        member: ``(N,)``, int64, ascending; the graph of each node.
        graph: all graphs side by side; undirected, weights of one, no self-loops.
        given: ten splits of others, where there are any.
    """

    name: str
    x: Tensor
    y: Tensor
    member: Tensor
    graph: Graph
    given: tuple[Split, ...] = ()

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1

    def split(self, fold: int) -> Split:
        """One of ten folds to test; of the others, a tenth of each class to validate, and the rest to train.

        Of PROTEINS and NCI1, the splits are those of Errica et al. (2020).
        """
        if not 0 <= check_integer("fold", fold, minimum=0) < FOLDS:
            raise ValueError(f"{self.name} has {FOLDS} folds, got the number {fold}")
        if self.given:
            return self.given[fold]
        dealt = deal_by_class(self.y, torch.arange(len(self.y)), data_generator(f"tu {self.name}", 0))
        rest = dealt.flatten()[dealt.flatten() >= 0].sort().values
        test = dealt[fold][dealt[fold] >= 0].sort().values
        rest = rest[~torch.isin(rest, test)]
        inner = deal_by_class(self.y, rest, data_generator(f"tu {self.name}", 1, fold))[0]
        validation = inner[inner >= 0].sort().values
        return Split(rest[~torch.isin(rest, validation)], validation, test)

    def batches(self, size: int, number: int) -> list["GraphBatch"]:
        """All graphs in batches of at most ``size``, dealt at random, which ``number`` determines."""
        count = -(-len(self.y) // check_integer("size", size, minimum=1))
        order = torch.randperm(len(self.y), generator=data_generator(f"batches of {self.name}", number))
        edge_index, edge_weight = self.graph.to_edge_index()
        return [self.batch(part.sort().values, edge_index, edge_weight) for part in order.tensor_split(count)]

    def batch(self, graphs: Tensor, edge_index: Tensor, edge_weight: Tensor) -> "GraphBatch":
        """Some of the graphs, in ascending order."""
        place = torch.full((len(self.y),), -1)
        place[graphs] = torch.arange(len(graphs))
        nodes = (place[self.member] >= 0).nonzero().squeeze(1)
        moved = torch.full((len(self.member),), -1)
        moved[nodes] = torch.arange(len(nodes))
        kept = moved[edge_index[0]] >= 0
        graph = Graph.from_edge_index(moved[edge_index[:, kept]], edge_weight[kept], num_nodes=len(nodes))
        return GraphBatch(self.x[nodes], graph, graph.normalize("symmetric"), place[self.member[nodes]], graphs)


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Graphs side by side as one graph.

    Attributes:
        x: ``(N, F)``; features of the nodes.
        graph: the adjacency.
        shift: the same, symmetrically normalised: the operator by which activations shift.
        member: ``(N,)``; the place in this batch of the graph of each node.
        graphs: ``(B,)``; which graphs of the set these are.
    """

    x: Tensor
    graph: Graph
    shift: Graph
    member: Tensor
    graphs: Tensor

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "GraphBatch":
        graph, shift = self.graph.to(device, dtype), self.shift.to(device, dtype)
        return GraphBatch(self.x.to(device, dtype), graph, shift, self.member.to(device), self.graphs.to(device))

    @property
    def num_edges(self) -> int:
        return self.graph.num_edges

    def sum(self, x: Tensor) -> Tensor:
        """Sums over the nodes of each graph: ``(..., N, F)`` to ``(..., B, F)``."""
        return x.new_zeros(*x.shape[:-2], len(self.graphs), x.size(-1)).index_add(-2, self.member, x)


def deal_by_class(labels: Tensor, samples: Tensor, generator: torch.Generator) -> Tensor:
    """Deal samples at random into ten rows, each class evenly; rows that lack one sample end in -1."""
    order = samples[torch.randperm(len(samples), generator=generator)]
    order = order[labels[order].sort(stable=True).indices]
    padded = torch.full((-(-len(order) // FOLDS) * FOLDS,), -1)
    padded[: len(order)] = order
    return padded.view(-1, FOLDS).t()


def read_graphs(name: str, directory: PathLike | None = None) -> GraphSet:
    """Read a data set for graph classification; ``directory`` as in :func:`graphact_lab.data.download.locate`.

    Raises:
        DataError: the files are missing, or do not hold what they should.
    """
    stem = GRAPH_SETS[check_choice("name", name, tuple(GRAPH_SETS))]
    folder = locate("tu", directory)
    try:
        return read_tu(folder, name, stem)
    except (*DAMAGES, OSError) as error:
        raise DataError(f"{folder / stem} does not hold the data of {name}: {one_line(error)}") from error


def read_tu(folder: Path, name: str, stem: str) -> GraphSet:
    """A set in the format of TUDataset: text files of edges, and of a number for each node or graph, from 1 on."""

    def numbers(part: str) -> Tensor:
        path = folder / stem / f"{stem}_{part}.txt"
        return torch.from_numpy(np.loadtxt(path, dtype=np.int64, delimiter=",", ndmin=1))

    edge_index, member = numbers("A").t() - 1, numbers("graph_indicator") - 1
    labels, classes = (numbers(f"{part}_labels").unique(return_inverse=True)[1] for part in ("node", "graph"))
    edge_index = torch.cat([edge_index, edge_index.flip(0)], 1).unique(dim=1)
    graph = Graph.from_edge_index(edge_index[:, edge_index[0] != edge_index[1]], num_nodes=len(member))
    x = torch.nn.functional.one_hot(labels).float()
    given = read_splits(folder / "splits" / f"{stem}_splits.json") if name in GIVEN_SPLITS else ()
    return GraphSet(name, x, classes, member, graph, given)


def read_splits(path: Path) -> tuple[Split, ...]:
    """Nested splits in the format of Errica et al. (2020), whose inner part is one split of the training graphs."""

    def sorted_tensor(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).sort().values

    return tuple(
        Split(*(sorted_tensor(part) for part in (inner["train"], inner["validation"], fold["test"])))
        for fold in json.loads(path.read_text())
        for inner in fold["model_selection"]
    )
