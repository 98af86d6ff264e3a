"""Planetoid: the citation graphs Cora, CiteSeer and PubMed of Yang et al. (2016), as PyG reads them."""

from dataclasses import dataclass

from torch import Tensor

from graphact._checks import check_choice
from graphact._extras import require
from graphact_lab.data.download import PathLike, locate
from graphact_lab.data.sources import CITATION_GRAPHS
from graphact_lab.splits import Split


@dataclass(frozen=True, eq=False)
class Citations:
    """Documents, who cites whom, and what they are about.

    Attributes:
        x: ``(N, F)``, float32; the words of each document, present or not (PubMed: tf-idf).
        y: ``(N,)``, int64; the subject of each document, 0 where it is unknown.
        has_label: ``(N,)``; whether the subject is known. In CiteSeer 15 documents have neither words nor a subject.
        edge_index: ``(2, E)``, citations in both directions, each once, without self-loops; sorted by target.
        split: the public split: 20 documents a class to train, 500 to validate, 1,000 to test.
    """

    x: Tensor
    y: Tensor
    has_label: Tensor
    edge_index: Tensor
    split: Split

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1


def read_planetoid(name: str, directory: PathLike | None = None) -> Citations:
    """Read "cora", "citeseer" or "pubmed" from files with the right hash alone: they are pickles, which can run code.

    Args:
        name: of the graph.
        directory: as in :func:`graphact_lab.data.download.locate`.

    Raises:
        DataError: a file is missing or damaged.
    """
    check_choice("name", name, CITATION_GRAPHS)
    require("citation graphs need", "torch_geometric")
    from torch_geometric.io import read_planetoid_data

    read = read_planetoid_data(str(locate("planetoid", directory)), name)
    masks = (read.train_mask, read.val_mask, read.test_mask)
    split = Split(*(mask.nonzero().squeeze(1) for mask in masks))
    return Citations(read.x, read.y, read.x.any(1), read.edge_index, split)
