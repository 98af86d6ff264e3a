"""Data sets for node classification, all read alike: one graph, features, a class for each node, and splits."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphact._checks import check_choice, check_integer
from graphact.graph import Graph
from graphact.storage import DAMAGES, one_line
from graphact_lab.data.download import DataError, PathLike, locate
from graphact_lab.data.planetoid import read_planetoid
from graphact_lab.data.sources import CITATION_GRAPHS, FRIENDSHIP_GRAPHS, HETEROPHILOUS, NODE_SETS
from graphact_lab.fleets.features import SparseFeatures
from graphact_lab.splits import Split, class_split, data_generator, random_split

BINARY = ("minesweeper", "tolokers")  # scored by the area under the ROC curve
DENSE_ABOVE = 0.1  # share of entries that are not zero


@dataclass(frozen=True, eq=False)
class NodeData:
    """One graph whose nodes have classes.

    Attributes:
        name: one of ``NODE_SETS``.
        x: features ``(N, F)``; sparse where most of them are zero.
        y: ``(N,)``, int64; classes, 0 where there is none.
        has_label: ``(N,)``; whether a node has a class.
        graph: undirected, weights of one, no self-loops.
        metric: "accuracy" or "roc_auc".
        public: the public split of the citation graphs.
        masks: ``(10, N)`` for training, validation and testing, where splits are given.
    """

    name: str
    x: Tensor | SparseFeatures
    y: Tensor
    has_label: Tensor
    graph: Graph
    metric: str = "accuracy"
    public: Split | None = None
    masks: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1

    def split(self, number: int) -> Split:
        """The given split of that number, or a random one, which the number determines.

        Random ones have 20 nodes of each class to train, 500 to validate and 1,000 to test.
        """
        if self.masks is not None:
            if not 0 <= check_integer("number", number, minimum=0) < len(self.masks[0]):
                raise ValueError(f"{self.name} has {len(self.masks[0])} given splits, got the number {number}")
            return Split(*(mask[number].nonzero().squeeze(1) for mask in self.masks))
        generator = data_generator(f"{NODE_SETS[self.name]} {self.name}", number)
        sizes = {"per_class": 20, "validation": 500, "test": 1000}
        return class_split(torch.where(self.has_label, self.y, -1), generator=generator, **sizes)

    def fifth(self, number: int) -> Split:
        """A random fifth of the nodes trains; all others validate *and* test, so that scores are optimistic."""
        nodes = self.has_label.nonzero().squeeze(1)
        generator = data_generator(f"fifth {self.name}", number)
        dealt = random_split(len(nodes), validation=0, test=round(0.8 * len(nodes)), generator=generator)
        return Split(nodes[dealt.train], nodes[dealt.test], nodes[dealt.test])


def read_nodes(name: str, directory: PathLike | None = None, *, normalize_features: bool = True) -> NodeData:
    """Read a data set for node classification; ``directory`` as in :func:`graphact_lab.data.download.locate`.

    Rows of word counts are divided by their sums, as usual for these graphs, unless ``normalize_features`` is false.
    The heterophilous graphs come as they are.

    Raises:
        DataError: the files are missing, or do not hold what they should.
    """
    check_choice("name", name, tuple(NODE_SETS))
    if name in CITATION_GRAPHS:
        read = read_planetoid(name, directory)
        graph = Graph.from_edge_index(read.edge_index, num_nodes=len(read.y))
        data = NodeData(name, SparseFeatures.from_dense(read.x), read.y, read.has_label, graph, public=read.split)
    else:
        folder = locate(NODE_SETS[name], directory)
        path = folder / (f"{FRIENDSHIP_GRAPHS[name]}.mat" if name in FRIENDSHIP_GRAPHS else f"{name}.npz")
        try:
            data = read_mat(path, name) if name in FRIENDSHIP_GRAPHS else read_npz(path, name)
        except (*DAMAGES, OSError) as error:
            raise DataError(f"{path} does not hold the data of {name}: {one_line(error)}") from error
    if normalize_features and isinstance(data.x, SparseFeatures) and name not in HETEROPHILOUS:
        return replace(data, x=data.x.normalized())
    return data


def read_mat(path: Path, name: str) -> NodeData:
    """BlogCatalog or Flickr."""
    from scipy.io import loadmat

    content: dict[str, Any] = loadmat(path)
    words, links = content["Attributes"].tocoo(), content["Network"].tocoo()
    y = torch.from_numpy(content["Label"].astype(np.int64).ravel()) - 1
    entries = torch.from_numpy(words.data.astype(np.float32))
    rows, cols = (torch.from_numpy(index.astype(np.int64)) for index in (words.row, words.col))
    x = SparseFeatures.from_entries(rows, cols, entries, words.shape)
    edge_index = torch.from_numpy(np.stack([links.col, links.row]).astype(np.int64))
    graph = Graph.from_edge_index(edge_index, num_nodes=len(y))
    return NodeData(name, x, y, torch.ones(len(y), dtype=torch.bool), graph)


def read_npz(path: Path, name: str) -> NodeData:
    """One of the heterophilous graphs; edges are given in one direction."""
    with np.load(path) as content:
        features, labels, edges = (torch.from_numpy(content[key]) for key in ("node_features", "node_labels", "edges"))
        train, validation, test = (
            torch.from_numpy(content[f"{key}_masks"].astype(bool)) for key in ("train", "val", "test")
        )
    both = torch.cat([edges.t(), edges.t().flip(0)], dim=1).long().unique(dim=1)
    both = both[:, both[0] != both[1]]
    features = features.float()
    is_sparse = float((features != 0).float().mean()) < DENSE_ABOVE
    x = SparseFeatures.from_dense(features) if is_sparse else features
    graph, labels = Graph.from_edge_index(both, num_nodes=len(labels)), labels.long()
    metric = "roc_auc" if name in BINARY else "accuracy"
    return NodeData(
        name, x, labels, torch.ones_like(labels, dtype=torch.bool), graph, metric, masks=(train, validation, test)
    )
