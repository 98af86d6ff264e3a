"""Files that version 0.1.0 wrote (see make_fixtures.py) are read, and mean what they meant."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scaleout.processes import environment
from support.activations import PAPER

import graphact
from graphact import Graph
from graphact.cli import main
from graphact.scaleout import PartitionedGraph, ScaleoutSettings, read_manifest, train

FIXTURES = Path(__file__).with_name("fixtures")
MODELS = sorted(path.stem for path in (FIXTURES / "models").glob("*.safetensors"))
GRAPHS = json.loads((FIXTURES / "graphs" / "expected.json").read_text())
BOUND = {torch.float64: 1e-12, torch.float32: 1e-6}
RUN = ["run", "source-localization", "--preset", "smoke", "--device", "cpu"]


def assert_close(found, expected, bound):
    """Within a bound relative to the largest value."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound * np.abs(expected).max())


def contents(folder):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def copied(tmp_path):
    """Copies a folder of fixtures to where it may be written to."""
    return lambda name: Path(shutil.copytree(FIXTURES / name, tmp_path / Path(name).name))


@pytest.mark.parametrize("name", MODELS)
def test_models(name, tmp_path):
    model, graph = graphact.load(FIXTURES / "models" / f"{name}.safetensors"), Graph.load(FIXTURES / "models/graph.npz")
    with np.load(FIXTURES / "models" / "expected.npz") as stored:
        x, expected = stored["x"], torch.from_numpy(stored[name])
    dtype = expected.dtype
    assert {parameter.dtype for parameter in model.parameters()} <= {dtype}
    with torch.no_grad():
        answer = model(torch.from_numpy(x).to(dtype), graph.to(dtype))
    assert answer.dtype == dtype
    assert_close(answer, expected, BOUND[dtype])
    graphact.save(model, tmp_path / "again.safetensors")
    with torch.no_grad():
        again = graphact.load(tmp_path / "again.safetensors")(torch.from_numpy(x).to(dtype), graph.to(dtype))
    assert torch.equal(again, answer)
    if "relu" not in name or "gcnn" in name:  # given an edge_index, version 0.1 took its weights as they are
        assert model.config()["normalize"] is None
        assert model.config().get("start", "uniform") == "uniform"
    with torch.no_grad():
        edges = graph.to(dtype).to_edge_index()
        assert_close(model(torch.from_numpy(x).to(dtype), *edges), expected, BOUND[dtype])


def test_every_kind_of_module_has_a_fixture():
    assert len(MODELS) == 42
    for name in PAPER:  # the activations of version 0.1
        assert {f"gcnn-{name}", f"gcnn-{name}-2-hops", f"activation-{name}"} <= set(MODELS)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("suffix", ["npz", "txt"])
def test_graphs(name, suffix):
    expected = GRAPHS[name]
    graph = Graph.load(FIXTURES / "graphs" / f"{name}.{suffix}")
    dense = torch.tensor(expected["dense"], dtype=torch.float64)
    if suffix == "npz":
        assert str(graph.dtype) == expected["dtype"]
    else:  # a list of edges has no dtype
        assert graph.dtype == torch.float32
        dense = dense.float().double()
    assert torch.equal(graph.to_dense().double(), dense)
    assert graph.num_edges == expected["edges"]


ON_TWO_PROCESSES = """
import sys
import numpy as np, torch
import graphact
from graphact.scaleout import PartitionedGraph, connect

torch.set_num_threads(1)
rank, _ = connect(timeout=60)
folder = sys.argv[1]
graph, model = PartitionedGraph.load(f"{folder}/two"), graphact.load(f"{folder}/model.safetensors")
x = torch.from_numpy(np.load(f"{folder}/expected.npz")["x"])
with torch.no_grad():
    np.savez(f"{folder}/found-{rank}.npz", nodes=graph.nodes, outputs=model(x[graph.nodes], graph))
"""


@pytest.mark.slow
def test_a_partition(copied):
    folder = copied("partition")
    manifest = read_manifest(folder / "two")
    assert (manifest["parts"], manifest["nodes"], manifest["method"]) == (2, 12, "metis")
    (folder / "script.py").write_text(ON_TWO_PROCESSES)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, str(folder / "script.py"), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), timeout=120)
    assert result.returncode == 0, result.stderr
    with np.load(folder / "expected.npz") as stored:
        expected = stored["outputs"]
    found = np.full_like(expected, np.nan)
    for rank in range(2):
        with np.load(folder / f"found-{rank}.npz") as part:
            found[part["nodes"]] = part["outputs"]
    assert_close(found, expected, 1e-12)


def test_a_checkpoint_of_training_on_a_shared_graph(copied):
    folder = copied("scaleout")
    with np.load(folder / "expected.npz") as stored:
        x, expected = torch.from_numpy(stored["x"]), stored["losses"]
    model, part = (
        graphact.load(folder / "model.safetensors"),
        PartitionedGraph.from_graph(Graph.load(folder / "graph.npz")),
    )
    done = []
    losses = train(
        model,
        part,
        x,
        x.abs(),
        settings=ScaleoutSettings(epochs=8, learning_rate=0.01),
        checkpoint=folder / "checkpoint.safetensors",
        progress=lambda epoch, *_: done.append(epoch),
    )
    assert done == [6, 7, 8]
    np.testing.assert_array_equal(losses[:5], expected[:5])
    assert_close(losses, expected, 1e-12)


def test_a_finished_run_trains_nothing_and_reports(copied, capsys):
    out = copied("runs/finished")
    before = contents(out / "rows")
    assert len(before) == 7
    assert main([*RUN, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "finished already" in printed
    assert "report: " in printed
    assert re.search(r"^ReLU +25\.2 ± 5\.8 ▼ +47\.9 ± 12\.1$", printed, flags=re.MULTILINE)
    assert contents(out / "rows") == before
    shutil.rmtree(out / "figures")
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    assert "ReLU" in (out / "report.html").read_text()
    assert list((out / "figures").glob("*.png"))
    assert list((out / "tables").glob("*.csv"))
    assert contents(out / "rows") == before


def test_an_interrupted_run_goes_on(copied, capsys):
    out = copied("runs/interrupted")
    finished = contents(out / "rows")
    assert len(finished) == 2
    assert main([*RUN, "--activation", "relu", "--activation", "max-ga", "--out", str(out)]) == 0
    assert "finished already" in capsys.readouterr().out
    assert contents(out / "rows").items() > finished.items()
    assert not list((out / "checkpoints").glob("*"))
    rows = [row for path in sorted((out / "rows").glob("*.json")) for row in json.loads(path.read_text())]
    expected = json.loads((FIXTURES / "runs" / "expected-rows.json").read_text())
    assert len(rows) == len(expected) == 12
    for row, other in zip(rows, expected, strict=True):
        for name in other.keys() - {"seconds", "finished", "graphact", "torch"}:
            if name in ("beta", "weights") and other[name] is not None:
                assert_close(row[name], other[name], 1e-5)
            else:
                assert row[name] == other[name]
