"""The real data: which files, what they must hold, and where their publishers keep them."""

from dataclasses import dataclass


class DataError(RuntimeError):
    """A data file is missing, damaged or out of reach. The message is one line that says what to do."""


@dataclass(frozen=True)
class DataFile:
    """One file of a dataset.

    Attributes:
        path: where it lies inside a data directory, with forward slashes.
        sha256: SHA-256 of its content.
        url: where it comes from.
        member: its name inside the zip archive at ``url``; None when ``url`` is the file itself.
    """

    path: str
    sha256: str
    url: str
    member: str | None = None


# MovieLens 100K of GroupLens: for research, not to be redistributed.
MOVIELENS = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
# Molène: hourly observations of Météo-France (Licence Ouverte), first published on data.gouv.fr as "Données horaires
# des 55 stations terrestres de la zone Large Molène sur un mois". This repository keeps that archive unchanged, with
# the list of stations as a CSV file.
MOLENE = (
    "https://raw.githubusercontent.com/bgirault-usc/Molene-Dataset/2b3c9faa4aceb5d037a6e09fbb638362d9d67b48"
    "/Original_Data"
)

DATASETS: dict[str, tuple[DataFile, ...]] = {
    "ml-100k": (
        DataFile(
            path="ml-100k/u.data",
            sha256="06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
            url=MOVIELENS,
            member="ml-100k/u.data",
        ),
        DataFile(
            path="ml-100k/u.item",
            sha256="553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
            url=MOVIELENS,
            member="ml-100k/u.item",
        ),
    ),
    "molene": (
        DataFile(
            path="molene/RADOMEH.tar.gz",
            sha256="15755616c0de991571518eb3aa319dedbb668955058335e3abc461827b32c803",
            url=f"{MOLENE}/RADOMEH.tar.gz",
        ),
        DataFile(
            path="molene/weather_stations.csv",
            sha256="0c17e597f87ff7c171c1cf3d150cc7c7cd449a774f425bde33094fffd595ae81",
            url=f"{MOLENE}/weather_stations.csv",
        ),
    ),
}
