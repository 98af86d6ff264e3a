"""Findings of several processes, for all tests of this folder."""

import json
from pathlib import Path

import pytest
import torch

from distributed.processes import run_together
from graphact import Graph
from graphact.cli import main
from support.sharing import made_once

SCRIPT = Path(__file__).with_name("four_processes.py")


@pytest.fixture(scope="session")
def workplace(request, tmp_path_factory):
    """A folder with a graph, its partitions for three and for two processes, and what four processes found."""
    return made_once(request.config, tmp_path_factory, "scaleout", let_four_work)


def let_four_work(directory):
    """Divide a graph, and run everything that needs several processes."""
    points = torch.rand(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Graph.nearest_neighbors(points, 3).normalize("spectral").save(directory / "graph.npz")
    for folder, parts in (("parts", "3"), ("two", "2")):
        command = ["partition", str(directory / "graph.npz"), "--parts", parts, "--out", str(directory / folder)]
        assert main(command) == 0
    (directory / "undisturbed").mkdir()
    codes, printed = run_together(SCRIPT, 4, directory)
    assert codes == [0, 0, 0, 0], "\n".join(printed)


@pytest.fixture(scope="session")
def findings(workplace):
    """Findings of each process, by name, number of processes and process."""
    return {path.stem: json.loads(path.read_text()) for path in workplace.glob("*-[1-4]-[0-3].json")}
