"""Damaged files that tests/fuzz.py found to crash a reader, to take gigabytes or to end in a strange error."""

import io
import json
import zipfile

import numpy as np
import pytest
import scipy.sparse
import torch

import graphact
import graphact_agents as agents
from graphact import Graph, nn
from graphact.commands.certify import read_signals
from graphact.distributed import PartitionError, assign_nodes, divide, read_manifest, write_partition
from graphact.distributed.partition import read_part
from graphact.storage import header_digest, load_tensors, one_line, save_tensors
from graphact_agents.addresses import Address
from graphact_agents.command_simulate import read_numbers
from graphact_agents.disk import read_json
from graphact_agents.learning.state import State
from graphact_agents.signals import FileSignals, NoSignal, parse
from graphact_lab import parquet, store
from graphact_lab.data.download import DataError
from graphact_lab.data.molene import read_molene
from support.imitation import STATIONS, station_file, station_lines, write_molene
from support.on_agents import to_model

DEEP = b"[" * 100_000 + b"]" * 100_000
HUGE = (
    b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,)}".ljust(117)
    + b"\n"
)
UNTIDY = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': ((3,".ljust(117) + b"\n"


def rezipped(path, **members):
    """Replace members of an archive, and keep its checksums right."""
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**kept, **{f"{name}.npy": content for name, content in members.items()}}.items():
            archive.writestr(name, content)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


class TestGraphs:
    @pytest.mark.parametrize(
        "members",
        [
            {"indices": npy(np.array([7, 10**6], np.int32))},
            {"indptr": npy(np.array([0, 2, 1, 2], np.int32))},
            {"indptr": npy(np.array([0, 10**8, 1, 2], np.int32))},
            {"data": HUGE},
            {"data": UNTIDY},
        ],
        ids=["index beyond", "decreasing", "far beyond", "huge", "untidy header"],
    )
    def test_archive_with_other_arrays(self, tmp_path, members):
        Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3).save(tmp_path / "graph.npz")
        rezipped(tmp_path / "graph.npz", **members)
        with pytest.raises(ValueError, match="graph.npz is not a graph file"):
            Graph.load(tmp_path / "graph.npz")

    def test_archive_with_zeros_in_it(self, tmp_path):
        path = tmp_path / "graph.npz"
        Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3).save(path)
        content = bytearray(path.read_bytes())
        content[:100] = bytes(100)
        path.write_bytes(content)
        with pytest.raises(ValueError, match="graph.npz is not a graph file"):
            Graph.load(path)

    def test_more_nodes_than_a_file_can_mean(self, tmp_path):
        entries = ([1.0], ([0], [1]))
        scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.coo_array(entries, shape=(10**9, 10**9)))
        (tmp_path / "b.txt").write_text("# nodes 1000000000\n0 1\n")
        (tmp_path / "c.csv").write_text("0,999999999\n")
        for name in ("a.npz", "b.txt", "c.csv"):
            with pytest.raises(ValueError, match="1000000000 nodes and 1 edges are hardly meant"):
                Graph.load(tmp_path / name)
        (tmp_path / "d.txt").write_text("# nodes 100000\n0 1\n")
        assert Graph.load(tmp_path / "d.txt").num_nodes == 100_000

    def test_node_that_no_integer_holds(self, tmp_path):
        (tmp_path / "graph.txt").write_text("0 1e300\n")
        with pytest.raises(ValueError, match="the nodes of an edge must be numbers from 0 on"):
            Graph.load(tmp_path / "graph.txt")

    def test_number_of_nodes_cut_off(self, tmp_path):
        (tmp_path / "graph.txt").write_text("# nodes")
        with pytest.raises(ValueError, match="graph.txt is not a graph file"):
            Graph.load(tmp_path / "graph.txt")


class TestArrays:
    @pytest.mark.parametrize("shape", [(0, 3, 1), (4, 3, 0)])
    def test_signals_without_a_number(self, tmp_path, shape):
        np.save(tmp_path / "x.npy", np.zeros(shape))
        with pytest.raises(ValueError, match="at least one signal with one feature"):
            read_signals(tmp_path / "x.npy", 3, 5)

    @pytest.mark.parametrize("content", [HUGE, UNTIDY, b"PK\x03\x04", b""], ids=["huge", "untidy", "archive", "empty"])
    def test_every_reader_of_signals(self, tmp_path, content):
        path = tmp_path / "x.npy"
        path.write_bytes(content)
        model = to_model(nn.GraphFilter(1, 1, order=1))
        for read in (
            lambda: FileSignals(path, model),
            lambda: read_numbers(path, "(M, N, F)", lambda _: True),
            lambda: read_signals(path, 3, 5),
        ):
            with pytest.raises(ValueError, match="x.npy is not a NumPy file of numbers, or is damaged: "):
                read()

    def test_archive_instead_of_an_array(self, tmp_path):
        np.savez(tmp_path / "x.npz", a=np.ones(3))
        (tmp_path / "x.npz").rename(tmp_path / "x.npy")
        with pytest.raises(ValueError, match="must hold one array, got an archive"):
            FileSignals(tmp_path / "x.npy", to_model(nn.GraphFilter(1, 1, order=1)))

    def test_state_of_a_node_that_learns(self, tmp_path):
        State.first(np.ones(2), 1).save(tmp_path / "state.npz")
        rezipped(tmp_path / "state.npz", tracker=HUGE)
        with pytest.raises(ValueError, match="not the state of a node that learns"):
            State.load(tmp_path / "state.npz")

    def test_long_reasons_are_cut(self):
        assert one_line("a\n b") == "a b"
        assert len(one_line("x" * 10_000)) == 503


class TestNestedJson:
    def test_agents(self, tmp_path):
        (tmp_path / "a.json").write_bytes(DEEP)
        with pytest.raises(ValueError, match="not valid JSON"):
            read_json(tmp_path / "a.json")
        (tmp_path / "log.jsonl").write_bytes(DEEP + b"\n")
        with pytest.raises(ValueError, match="line 1: not a record"):
            list(agents.read_log(tmp_path / "log.jsonl"))
        with pytest.raises(NoSignal, match="must hold a JSON array"):
            parse("a line", DEEP.decode(), to_model(nn.GraphFilter(1, 1, order=1)))

    def test_long_addresses_are_cut(self):
        with pytest.raises(ValueError, match="an address must be") as caught:
            Address.parse("1" * 5000)
        assert len(str(caught.value)) < 200

    def test_results(self, tmp_path):
        (tmp_path / "run.json").write_bytes(DEEP)
        with pytest.raises(store.StoreError, match=r"run\.json is damaged"):
            store.Store(tmp_path).commands()

    def test_results_that_decompress_to_too_much(self, tmp_path, monkeypatch):
        monkeypatch.setattr(parquet, "MAX_BYTES", 1000)
        rows = [{"x": 1.0}] * 200
        (tmp_path / "rows.parquet").write_bytes(parquet.encode_cells({"a": rows}))
        with pytest.raises(store.StoreError, match="it holds more than 1000 bytes"):
            store.Store(tmp_path).rows()

    def test_results_that_are_too_large(self, tmp_path, monkeypatch):
        monkeypatch.setattr(store, "MAX_FILE_BYTES", 1000)
        (tmp_path / "rows").mkdir()
        (tmp_path / "rows" / "a.json").write_bytes(b" " * 2000)
        with pytest.raises(store.StoreError, match="it holds more than 1000 bytes"):
            store.Store(tmp_path).rows()


class TestModels:
    @pytest.mark.parametrize("frozen", [0.5, "taps", ["other"], [[]], None])
    def test_frozen_parameters_that_are_none(self, tmp_path, frozen):
        path = tmp_path / "model.safetensors"
        graphact.save(nn.GraphFilter(1, 2, order=1), path)
        header, tensors = load_tensors(path)
        own = ("format", "version", "sha256", "header_sha256")
        rest = {key: value for key, value in header.items() if key not in own}
        save_tensors(path, tensors, {**rest, "frozen": frozen})
        with pytest.raises(ValueError, match="frozen must list names of parameters"):
            graphact.load(path)

    @pytest.mark.parametrize("changed", [{"module": "1" * 5000}, {"config": {"1" * 5000: 1}}, {"version": "1" * 5000}])
    def test_long_values_are_cut(self, tmp_path, changed):
        path = tmp_path / "model.safetensors"
        graphact.save(nn.GraphFilter(1, 2, order=1), path)
        header, tensors = load_tensors(path)
        save_tensors(path, tensors, {key: value for key, value in header.items() if "sha256" not in key} | changed)
        with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
            graphact.load(path)
        assert len(str(caught.value)) < 1000


class TestPartitions:
    @pytest.mark.parametrize(
        "changed", [{"files": [1, 2]}, {"files": 3}, {"files": []}, {"parts": 3}, {"nodes": "4"}, {"files": [{}, {}]}]
    )
    def test_manifest_that_says_something_else(self, tmp_path, changed):
        graph = Graph.from_edge_index([[0, 1, 2, 3], [1, 0, 3, 2]])
        owner, method = assign_nodes(graph, 2, "blocks")
        manifest = {**write_partition(divide(graph, owner, 2), tmp_path, method=method), **changed}
        (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "header_sha256": header_digest(manifest)}))
        with pytest.raises(PartitionError, match="does not describe the nodes and the files"):
            read_manifest(tmp_path)

    def test_part_without_an_array(self, tmp_path):
        import hashlib

        from safetensors.numpy import load, save

        graph = Graph.from_edge_index([[0, 1, 2, 3], [1, 0, 3, 2]])
        owner, method = assign_nodes(graph, 2, "blocks")
        manifest = write_partition(divide(graph, owner, 2), tmp_path, method=method)
        path = tmp_path / manifest["files"][0]["name"]
        content = save({name: array for name, array in load(path.read_bytes()).items() if name != "send"})
        path.write_bytes(content)
        manifest["files"][0] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "header_sha256": header_digest(manifest)}))
        with pytest.raises(PartitionError, match="sizes or indices do not fit together"):
            read_part(tmp_path, 0, 2)


class TestDataSets:
    def test_row_without_a_temperature(self, tmp_path):
        files = {station_file(station): station_lines(station) for station in STATIONS}
        lines = files[station_file(STATIONS[0])]
        lines[5] = ",".join(lines[5].split(",")[:3])
        with pytest.raises(DataError, match="does not hold the Molène data"):
            read_molene(write_molene(tmp_path / "molene", files))

    def test_station_file_that_unpacks_to_too_much(self, tmp_path, monkeypatch):
        from graphact_lab.data import molene

        monkeypatch.setattr(molene, "MAX_FILE_SIZE", 1000)
        with pytest.raises(DataError, match="would take"):
            read_molene(write_molene(tmp_path / "molene"))


def test_nothing_of_this_touches_a_good_file(tmp_path):
    graph = Graph.from_edge_index([[0, 1, 2], [1, 0, 2]], torch.tensor([1.0, 2.0, 0.5]), 4)
    for ending in ("npz", "txt"):
        graph.save(tmp_path / f"graph.{ending}")
        assert torch.equal(Graph.load(tmp_path / f"graph.{ending}").to_dense(), graph.to_dense())


def test_a_long_reason_is_cut(tmp_path):
    header = b'{"a": {"dtype": "%s", "shape": [1], "data_offsets": [0, 4]}}' % (b"1" * 5000)
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ValueError, match="not a readable safetensors file") as error:
        graphact.load(tmp_path / "model.safetensors")
    assert len(str(error.value)) < 1000
