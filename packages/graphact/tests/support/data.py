"""Fixtures with data: small imitations of the real files, and the real files where they are at hand."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from graphact_lab.data.download import VARIABLE
from graphact_lab.data.movielens import Ratings
from support.imitation import write_molene
from support.web import ARCHIVE, CITATIONS, COORDINATES, NODES, RATINGS, TITLES, Server, publish, zip_of


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small matrices take longest where threads wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def real_data():
    """The directory of the real data."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        pytest.skip(f"the real data is needed: set {VARIABLE} to its directory")
    return Path(directory)


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    """The cache folder of a user who has no data yet."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "graphact"


@pytest.fixture
def ratings():
    """Ratings of 15 films by 60 users who share two tastes; half of all ratings are missing."""
    random = np.random.default_rng(0)
    taste = random.normal(size=(60, 2)) @ random.normal(size=(2, 15))
    matrix = np.clip(np.round(3 + taste + random.normal(scale=0.5, size=taste.shape)), 1, 5)
    matrix[random.random(matrix.shape) < 0.5] = 0
    return Ratings(matrix, tuple(f"Film {item}" for item in range(1, 16)))


@pytest.fixture
def molene_folder(tmp_path):
    """Fourteen complete stations on a line from east to west."""
    return write_molene(tmp_path / "molene")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    server.pages = {
        "/ml-100k.zip": zip_of({"ml-100k/u.data": RATINGS, "ml-100k/u.item": TITLES, "../../evil": b"evil"}),
        "/RADOMEH.tar.gz": ARCHIVE,
        "/weather_stations.csv": COORDINATES,
        "/ind.cora.graph": CITATIONS,
        **dict.fromkeys(("/wisconsin.npz", "/Flickr.mat", "/NCI1_splits.json"), NODES),
    }
    publish(monkeypatch, server.url)
    yield server
    server.close()
