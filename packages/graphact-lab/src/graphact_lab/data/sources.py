"""Every file of every data set, from sources.txt: where it lies, its hash, and where it comes from."""

from dataclasses import dataclass
from pathlib import Path

SOURCE_DESCRIPTIONS = {  # a line for each
    "ml-100k": "MovieLens 100K: ratings of 1682 films by 943 users",
    "molene": "Molène: hourly temperatures of weather stations in Brittany",
    "planetoid": "Cora, CiteSeer and PubMed: citations between papers, with their public splits",
    "heterophily": "minesweeper, tolokers, actor, filtered chameleon and squirrel, wisconsin: ten given splits",
    "attributed": "BlogCatalog and Flickr: friends, and the words that they use",
    "tu": "MUTAG, PTC_MR, PROTEINS, NCI1 and NCI109: molecules and proteins of TUDataset, a class each",
}
# Graphs whose nodes have classes, by data set
CITATION_GRAPHS = ("cora", "citeseer", "pubmed")
FRIENDSHIP_GRAPHS = {"blogcatalog": "BlogCatalog", "flickr": "Flickr"}  # and their files
HETEROPHILOUS = ("squirrel_filtered", "chameleon_filtered", "wisconsin", "actor", "minesweeper", "tolokers")
NODE_SETS = {
    **dict.fromkeys(CITATION_GRAPHS, "planetoid"),
    **dict.fromkeys(FRIENDSHIP_GRAPHS, "attributed"),
    **dict.fromkeys(HETEROPHILOUS, "heterophily"),
}


@dataclass(frozen=True)
class DataFile:
    """One file of a dataset.

    Attributes:
        path: where it lies inside a data directory, with forward slashes; first the name of the dataset.
        sha256: SHA-256 of its content.
        url: where it comes from.
        member: its name inside the zip archive at ``url``; "" when ``url`` is the file itself.
    """

    path: str
    sha256: str
    url: str
    member: str = ""


def read_sources() -> dict[str, tuple[DataFile, ...]]:
    """Read sources.txt, the files of each data set."""
    lines = Path(__file__).with_name("sources.txt").read_text(encoding="utf-8").splitlines()
    files = []
    for path, sha256, address in (line.split() for line in lines if line and not line.startswith("#")):
        url, _, member = address.partition("#")
        files.append(DataFile(path, sha256, url, member))
    return {name: tuple(file for file in files if file.path.startswith(f"{name}/")) for name in SOURCE_DESCRIPTIONS}


DATASETS = read_sources()
