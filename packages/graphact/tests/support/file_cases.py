"""Cases of the fuzzer for files: every reader of the library reads damaged ones.

It must raise the error that it documents, in one line, or return something that is right: what was written, for files
that carry a hash, and something valid for the others. It must not hang or take gigabytes.
"""

import contextlib
import resource
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphact
import graphact_agents as agents
from graphact import Graph, nn
from graphact import distributed as scaleout
from graphact.commands.certify import read_signals
from graphact.distributed.partition import assign_nodes, divide, read_part, write_partition
from graphact.distributed.training import SharedCheckpoint
from graphact.training import Fleet, TrainingSettings
from graphact.training.loop import SingleModel
from graphact_agents.addresses import Address, Addresses
from graphact_agents.command_simulate import read_numbers
from graphact_agents.learning.state import State
from graphact_agents.messages import Kind, Message, Payload, decode, encode
from graphact_agents.network import NetworkFile
from graphact_agents.signals import EndOfSignals, FileSignals
from graphact_lab.data.download import DataError
from graphact_lab.data.molene import read_molene
from graphact_lab.data.movielens import read_movielens
from graphact_lab.store import Store, StoreError
from support.damage import SHARES as WAY_SHARES
from support.damage import STRATEGIES, damage
from support.imitation import write_molene, write_movielens
from support.on_agents import deploy, to_model

MAX_MEMORY = 2**30
NODES = 6


@dataclass(frozen=True)
class Reader:
    """A reader of the library.

    Attributes:
        write: writes files into a folder.
        read: reads them; returns something that can be compared, of nested lists, numbers and bytes.
        errors: what it may raise.
        sealed: files whose hash is checked: as long as only bytes change, what is returned is what was written.
        check: raises if what was returned is not valid.
    """

    write: Any
    read: Any
    errors: tuple[type[Exception], ...] = (ValueError,)
    sealed: bool = False
    check: Any = None


def small_graph(dtype=torch.float64):
    pairs = [[0, 1, 2, 3, 4, 2, 5], [1, 0, 3, 2, 0, 4, 5]]
    return Graph.from_edge_index(pairs, torch.tensor([0.5, 0.5, 1, 1, 2, 3, 4], dtype=dtype), NODES)


def small_model():
    torch.manual_seed(0)
    model = nn.GCNN([2, 3], order=1, activation="kernel-ga", learn_gamma=True, out_features=2, start="uniform")
    return model.double()


def canonical(value):
    """Something to compare with ==."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, value.tobytes()]
    if isinstance(value, dict):
        return {str(key): canonical(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(part) for part in value]
    return value


def model_content(model):
    return canonical(
        [type(model).__name__, model.config(), model.state_dict(), [p.requires_grad for p in model.parameters()]]
    )


def graph_content(graph):
    return [graph.num_nodes, *canonical(graph.to_edge_index())]


def check_graph(content):
    nodes, (_, shape, pairs), (_, _, weights) = content
    pairs = np.frombuffer(pairs, np.int64).reshape(shape)
    assert nodes >= 1
    assert shape[0] == 2
    assert pairs.size == 0 or (pairs.min() >= 0 and pairs.max() < nodes)
    assert weights is not None


def check_finite_graph(path):
    graph = Graph.load(path)
    assert graph.weight.isfinite().all()
    return graph_content(graph)


def read_operator(folder):
    operator = agents.load_graph(folder / "graph.npz")
    assert np.isfinite(operator.weight).all()
    assert np.isfinite(operator.diagonal).all()
    assert operator.num_nodes >= 1
    assert operator.rowptr[-1] == len(operator.col) == len(operator.weight)
    assert len(operator.col) == 0 or 0 <= operator.col.min() <= operator.col.max() < operator.num_nodes
    return canonical([operator.rowptr, operator.col, operator.weight, operator.diagonal])


def write_node(folder):
    node = deploy(small_model(), small_graph(), secret=bytes(32))[0]
    places = {j: Address("10.0.0.7", 7500 + j) for j in node.links.neighbors}
    replace(node, addresses=Addresses(Address("::1", 7500), places), settings={"slot": 0.5}).save(folder)


def read_node(folder):
    held = agents.Deployment.load(folder)
    links, row = held.links, held.row
    assert np.isfinite(row.diagonal)
    places = [links.node, links.epoch, links.hears, links.heard_by, links.keys, repr([held.addresses, held.settings])]
    return canonical([*places, row.weights, row.diagonal])


def write_log(folder):
    log = agents.FileLog(folder / "log.jsonl")
    from graphact_agents.log import Began, RoundClosed

    for run in range(3):
        log.append(Began(run, 1))
        for number in range(2):
            log.append(RoundClosed(run, number, (1, 2)))
    log.close()


def read_records(folder):
    return [repr(record) for record in agents.read_log(folder / "log.jsonl")]


def continue_log(folder):
    log = agents.FileLog(folder / "log.jsonl")
    log.close()
    assert -1 <= log.last_run < 2**63
    return log.last_run


def plain_model():
    return to_model(small_model())


def read_file_signals(folder, name):
    source, taken = FileSignals(folder / name, plain_model()), []
    with contextlib.suppress(EndOfSignals):
        while True:
            taken.append(source.take(len(taken)))
            assert np.isfinite(taken[-1]).all()
    return canonical(taken)


def state():
    return State.first(np.arange(5.0), 2)


def write_state(folder):
    state().save(folder / "state.npz")


def read_state(folder):
    return canonical(State.load(folder / "state.npz").to_arrays())


KEY = bytes(range(32))


def write_message(folder):
    payload = Payload.from_array(np.arange(6.0).reshape(2, 3))
    (folder / "datagram").write_bytes(encode(Message(Kind.DATA, 1, 0, 7, 3, 2, 1, payload), KEY))


def read_message(folder):
    message = decode((folder / "datagram").read_bytes(), 0, 7, {1: KEY})
    return canonical([*message[:7], message.payload.value])


def write_parts(folder):
    graph = small_graph()
    owner, method = assign_nodes(graph, 2, "blocks")
    write_partition(divide(graph, owner, 2), folder, method=method)


def read_parts(folder):
    parts = [read_part(folder, rank, 2) for rank in range(2)]
    return canonical([[part.known, part.owner, *part.rows, part.send, part.send_counts] for part in parts])


def write_store(folder, is_published=False):
    store = Store(folder)
    store.create("graphact-lab run x")
    store.finish("a", [{"metric": 1.0, "seed": 0}])
    store.finish("b", [{"metric": 2.0, "seed": 1}])
    if is_published:
        store.publish()


def read_store(folder):
    store = Store(folder)
    return [store.commands(), store.rows(), store.first_rows()]


def check_store(content):
    commands, rows, first = content
    assert all(isinstance(command, str) for command in commands)
    assert all(isinstance(row, dict) for row in [*rows, *first])


def small_fleet():
    from graphact.training import Task

    generator = torch.Generator().manual_seed(0)
    graph = small_graph(torch.float32)
    x, y = torch.randn(12, NODES, 1, generator=generator), torch.randn(12, NODES, 1, generator=generator)
    parts = tuple(torch.arange(12).split([8, 2, 2]))
    task = Task("small", graph, x, y, *parts, None, 1, "mse", "rmse", {})
    torch.manual_seed(1)
    model = nn.GCNN([1, 2], order=1, activation="max-ga", start="uniform")
    return Fleet([model], [task], seeds=[0])


def train_fleet(path):
    """A fleet that goes on from a checkpoint, or from the start if that is damaged, ends with the same parameters."""
    fleet = small_fleet()
    with graphact.backend("reference"):
        fleet.train(TrainingSettings(epochs=2, batch_size=4), checkpoint=path, every=lambda: not path.exists())
    return canonical([parameter for each in fleet.models for parameter in each.parameters()])


SCALED_WORK = {"nodes": 2, "rate": 0.01}  # of what a checkpoint of scale-out is


def scaled_model():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def shared_checkpoint(folder, model, losses):
    """The checkpoint of a training by one process, and what it is asked to write and read."""
    graph = scaleout.PartitionedGraph.from_graph(Graph.from_edge_index([[0, 1], [1, 0]]), "blocks")
    shared = SharedCheckpoint(folder / "checkpoint", graph, SCALED_WORK, 1, 2, losses, lambda _: None)
    return shared, SingleModel(model, lambda: model(torch.ones(1, 2)).sum())


def write_scaled(folder):
    model, optimizer = scaled_model()
    shared, batch = shared_checkpoint(folder, model, [2.0, 1.0])
    shared.write(batch, optimizer, None, 2, 0.0)


def read_scaled(folder):
    (model, optimizer), losses = scaled_model(), []
    shared, batch = shared_checkpoint(folder, model, losses)
    shared.read(batch, optimizer, None)
    return canonical([losses, model.state_dict(), [optimizer.state[p] for p in model.parameters()]])


def write_ratings(folder):
    matrix = np.random.default_rng(0).integers(0, 6, (5, 4)).astype(float)
    write_movielens(folder, matrix, [f"Film {i}" for i in range(4)])


def read_ratings(folder):
    ratings = read_movielens(folder, users=5, films=4)
    assert ratings.matrix.shape == (5, 4)
    assert ((ratings.matrix >= 0) & (ratings.matrix <= 5)).all()
    assert len(ratings.titles) == 4


def read_temperatures(folder):
    read = read_molene(folder)
    assert read.kelvin.shape == (744, len(read.stations))
    assert np.isfinite(read.kelvin).all()
    assert np.isfinite(read.degrees).all()


def save_npy(path, array):
    np.save(path, array)


NETWORK = '[nodes.0]\naddress = "10.0.0.5:7500"\n[nodes.1]\naddress = "[fe80::7]:7500"\n'
READERS = {
    "model": Reader(
        lambda folder: graphact.save(small_model(), folder / "model.safetensors"),
        lambda folder: model_content(graphact.load(folder / "model.safetensors")),
        sealed=True,
    ),
    "graph of agents": Reader(lambda folder: small_graph().save(folder / "graph.npz"), read_operator),
    "model of agents": Reader(
        lambda folder: graphact.save(small_model(), folder / "model.safetensors"),
        lambda folder: canonical(dict(agents.load_model(folder / "model.safetensors").parameters)),
        sealed=True,
    ),
    **{
        f"graph {ending}": Reader(
            lambda folder, ending=ending: small_graph().save(folder / f"graph.{ending}"),
            lambda folder, ending=ending: check_finite_graph(folder / f"graph.{ending}"),
            check=check_graph,
        )
        for ending in ("npz", "txt", "csv", "edges")
    },
    "node": Reader(write_node, read_node, sealed=True),
    "network file": Reader(
        lambda folder: (folder / "n.toml").write_text(NETWORK),
        lambda folder: repr(NetworkFile.load(folder / "n.toml").addresses),
    ),
    "log": Reader(write_log, read_records),
    "log to continue": Reader(write_log, continue_log),
    "signals npy": Reader(
        lambda folder: save_npy(folder / "s.npy", np.ones((3, 2))), lambda folder: read_file_signals(folder, "s.npy")
    ),
    "signals text": Reader(
        lambda folder: (folder / "s.jsonl").write_text("[1.0, 2.0]\n[3, 4]\n"),
        lambda folder: read_file_signals(folder, "s.jsonl"),
    ),
    "state of learning": Reader(write_state, read_state),
    "message": Reader(write_message, read_message, sealed=True),
    "partition": Reader(write_parts, read_parts, (scaleout.PartitionError,), sealed=True),
    "results": Reader(write_store, read_store, (StoreError,), check=check_store),
    "published results": Reader(lambda folder: write_store(folder, True), read_store, (StoreError,), check=check_store),
    "checkpoint": Reader(
        lambda folder: train_fleet(folder / "checkpoint"),
        lambda folder: train_fleet(folder / "checkpoint"),
        (),
        sealed=True,
    ),
    "checkpoint of scale-out": Reader(write_scaled, read_scaled, (ValueError,), sealed=True),
    "ratings": Reader(write_ratings, read_ratings, (DataError,)),
    "temperatures": Reader(write_molene, read_temperatures, (DataError,)),
    "numbers of a command": Reader(
        lambda folder: save_npy(folder / "x.npy", np.ones((3, NODES, 2))),
        lambda folder: canonical(read_numbers(folder / "x.npy", "(M, N, F)", lambda array: array.ndim == 3)),
    ),
    "signals of a command": Reader(
        lambda folder: save_npy(folder / "x.npy", np.ones((3, NODES, 2))),
        lambda folder: canonical(read_signals(folder / "x.npy", NODES, 2)),
    ),
}


@cache
def written(name):
    """The files of a reader, by their names, and what is read from them undamaged."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        READERS[name].write(folder)
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        return dict(sorted(files.items())), READERS[name].read(folder)


@contextlib.contextmanager
def limited_memory():
    """Let this process allocate a gigabyte more than it has, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # not Linux
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MAX_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def damaged_files(draw):
    """Damaged files for every reader: an error that is documented, in one line, or what is right."""
    name = draw.choice("reader", tuple(READERS))
    reader, (files, whole) = READERS[name], written(name)
    file = draw.choice("file", tuple(files))
    way = draw.choice("way", STRATEGIES, WAY_SHARES)
    known = ("model", "graph npz", "graph txt", "signals npy", "published results")
    others = [content for other in known for content in written(other)[0].values()]
    content = damage(files[file], way, draw.rng("damage"), others)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for path, kept in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content if path == file else kept)
        draw.count(f"damaged files: {name}")
        try:
            with limited_memory():
                read = reader.read(folder)
        except reader.errors as error:
            text = str(error)
            assert text.strip(), f"{name}: an error without a message"
            assert "\n" not in text.strip(), f"{name}: more than one line: {text[:300]!r}"
            assert len(text) < 2000, f"{name}: an error of {len(text)} characters"
            draw.count("refused")
            return
    draw.count("read")
    if reader.sealed and way not in ("inside", "other file"):
        assert read == whole, f"{name}: something else was read, and nothing was said"
    if reader.check is not None:
        reader.check(read)


SCENARIOS = {"damaged files": damaged_files}
SHARES = {"damaged files": 8}
