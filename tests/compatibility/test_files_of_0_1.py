"""Files that version 0.1.0 wrote (see make_fixtures.py) are read, and mean what they meant."""

import json
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
from graphact import Graph, agents
from graphact.agents.learning import FileStore
from graphact.cli import main
from graphact.scaleout import PartitionedGraph, ScaleoutSettings, read_manifest, train

FIXTURES = Path(__file__).with_name("fixtures")
MODELS = sorted(path.stem for path in (FIXTURES / "models").glob("*.safetensors"))
GRAPHS = json.loads((FIXTURES / "graphs" / "expected.json").read_text())
BOUND = {torch.float64: 1e-12, torch.float32: 1e-6}


def assert_close(found, expected, bound):
    """Within a bound relative to the largest value."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound * np.abs(expected).max())


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


def test_a_deployment_and_its_logs(copied):
    from graphact.agents.log import Began, RoundClosed
    from graphact.agents.replay import answered_links, replay

    folder = copied("nodes")
    nodes = [agents.Deployment.load(folder / f"node-{i}") for i in range(4)]
    assert [node.node for node in nodes] == [0, 1, 2, 3]
    assert {node.links.epoch for node in nodes} == {20}
    for i, node in enumerate(nodes):
        for j in node.links.neighbors:
            assert node.links.keys[j] == nodes[j].links.keys[i]
    with np.load(folder / "expected.npz") as stored:
        x, outputs, matrix = (stored[name] for name in ("x", "outputs", "matrix"))
    assert_close(agents.simulate_inference(nodes, x).outputs, outputs, 1e-12)

    logs = [list(agents.read_log(folder / f"node-{i}" / "log.jsonl")) for i in range(4)]
    rounds = nodes[0].model.rounds
    for i, records in enumerate(logs):
        neighbors = nodes[i].links.hears
        runs = [[Began(run, 1), *(RoundClosed(run, r, neighbors) for r in range(rounds))] for run in range(3)]
        assert records == [record for run in runs for record in run]
    for run in range(3):
        again = replay(nodes[0].model, matrix, x[run], *answered_links(logs, run, rounds))
        assert_close(again, outputs[run], 1e-12)
    log = agents.FileLog(folder / "node-0" / "log.jsonl")
    assert log.last_run == 2
    log.close()


def test_an_agent_goes_on_in_its_folder(copied):
    """The process of a node reads folder, addresses and log, and takes up the next run number."""
    from graphact.agents.addresses import Addresses

    folder = copied("nodes") / "node-1"
    (folder / "keys.json").chmod(0o600)  # as 0.1 left it; a repository does not keep it
    links = agents.Deployment.load(folder).links
    addresses = Addresses.load(folder, links.neighbors)
    assert str(addresses.listen).startswith("127.0.0.1:")
    assert str(addresses.neighbors[0]).startswith("127.0.0.1:")
    content = json.loads((folder / "addresses.json").read_text())
    (folder / "addresses.json").write_text(json.dumps({**content, "listen": "127.0.0.1:0"}))
    (folder / "signal.jsonl").write_text("[0.5]\n" * 4)
    words = ["agents", "run", folder, "--transport", "udp", "--period", "1", "--slot", "0.01", "--runs", "1"]
    command = [sys.executable, "-m", "graphact.cli", *map(str, words), "--signals", str(folder / "signal.jsonl")]
    result = subprocess.run([*command, "--repeat"], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    ready, *events = map(json.loads, result.stdout.splitlines())
    assert (ready["event"], ready["node"], ready["last_run"]) == ("ready", 1, 2)
    (answer,) = [event for event in events if event["event"] == "result"]
    assert answer["run"] > 2


def test_a_learning_checkpoint_is_refused(copied, capsys):
    """The order of its parameters depended on where the model came from: a node could go on with another model."""
    folder = copied("learning")
    words = ["agents", "train", folder / "model.safetensors", folder / "graph.npz", "--seed", 3, "--loss", 0.1]
    words += ["--signals", folder / "x.npy", "--targets", folder / "y.npy", "--steps", 40]
    words += ["--checkpoint", folder / "checkpoint.npz", "--out", folder / "trained.safetensors"]
    assert main(list(map(str, words))) == 2
    assert "checkpoint.npz: must be a checkpoint of version 2, got 1" in capsys.readouterr().err
    assert not (folder / "trained.safetensors").exists()


def test_the_state_of_a_node_that_learns_is_refused():
    with pytest.raises(ValueError, match="a state of version 1, whose order of parameters depended on"):
        FileStore(FIXTURES / "learning" / "state-of-node-2.npz").load()


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
