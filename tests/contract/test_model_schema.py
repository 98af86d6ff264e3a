"""The schema of the model file holds for both sides: all that the library writes, and exactly what agents accept."""

import copy
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

import graphact
import graphact_agents
from graphact import nn
from graphact.registry import BUILT_IN
from graphact_agents import load_model, save_model
from graphact_agents.disk import hash_json
from support.graphs import random_graph
from support.on_agents import to_model

SCHEMA = json.loads((Path(graphact_agents.__file__).parent / "model.schema.json").read_text())
ON_AGENTS = copy.deepcopy(SCHEMA)
ON_AGENTS["properties"]["layers"]["items"] = {"$ref": "#/$defs/agent_layer"}
LIBRARY, AGENTS = (jsonschema.Draft202012Validator(schema) for schema in (SCHEMA, ON_AGENTS))
LEARNED = {"kernel": "gamma", "soft-maximum": "temperature", "trimmed-mean": "trim", "weighted-mean": "width"}
GRAPH = random_graph(dtype=torch.float32)
MODELS = {
    **{name: lambda name=name: nn.make_activation(name, features=3) for name in BUILT_IN},
    **{
        f"{name}, {parameter} trained: {learn}": lambda name=name, key=f"learn_{parameter}", learn=learn: (
            nn.make_activation(f"{name}-ga", features=3, **{key: learn})
        )
        for name, parameter in LEARNED.items()
        for learn in (False, True)
    },
    **{
        name: lambda name=name: nn.GraphNetwork(
            [2, 3], convolution={"name": name, "graph": GRAPH} if name == "EdgeNet" else name
        )
        for name in nn.graph_network.CONVOLUTIONS
    },
    "GCNN": lambda: nn.GCNN([2, 3, 3], order=2, activation=["max-ga", "relu"], bias=True, out_features=2),
    "FIR": lambda: nn.FIR([2, 3], order=[2], bias=True),
    "bare filter": lambda: nn.GraphFilter(2, 3, order=2),
    "shared weights": lambda: nn.GraphAdaptive("min", hops=2, closed=True),
    "unshifted": lambda: nn.GraphAdaptiveKernel(3, hops=0, unshifted=True, learn_gamma=True),
    "unshifted mixture": lambda: nn.GraphAdaptiveMixture(3, hops=1, unshifted=True),
    "adaptive banks and residuals": lambda: nn.GCNN(
        [2, 3, 3], order=2, bank="adaptive", ops=["std", ("kernel", {"gamma": 2.0})], residual=True, bias=True
    ),
    "scaling": lambda: nn.ScaledNetwork(nn.GCNN([4, 3], order=1), 1, out_features=1, window=2, mask=True),
    "scaling of each node": lambda: nn.ScaledNetwork(nn.FIR([2, 3], order=1), 2, out_features=1, nodes=["a", "b"]),
    "max-k of two": lambda: nn.make_activation("max-k", k=2),
}


def read_file(path):
    """Return the header and the arrays of a model file."""
    with safe_open(path, framework="np") as file:
        return json.loads(file.metadata()["graphact"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def accepts(path):
    """Return whether agents load a file; a refusal is a ValueError of one line."""
    try:
        load_model(path)
    except ValueError as error:
        return len(str(error).splitlines()) != 1
    return True


@pytest.mark.parametrize("name", MODELS)
def test_what_the_library_writes(name, tmp_path):
    model = MODELS[name]()
    for parameter in list(model.parameters())[:1]:
        parameter.requires_grad_(False)
    graphact.save(model, tmp_path / "model.safetensors")
    header, _ = read_file(tmp_path / "model.safetensors")
    LIBRARY.validate(header)
    assert AGENTS.is_valid(header) == accepts(tmp_path / "model.safetensors")


def test_what_agents_write_is_the_same_file(tmp_path):
    graphact.save(MODELS["GCNN"](), tmp_path / "model.safetensors")
    save_model(load_model(tmp_path / "model.safetensors"), tmp_path / "again.safetensors")
    (header, arrays), (again, arrays_again) = (
        read_file(tmp_path / f"{name}.safetensors") for name in ("model", "again")
    )
    assert header == again
    assert {*arrays} == {*arrays_again}
    x = torch.randn(12, 2)
    models = [graphact.load(tmp_path / f"{name}.safetensors") for name in ("model", "again")]
    assert torch.equal(*(model(x, GRAPH) for model in models))


def change(path, value):
    """Return a change of a header: what stands under a path of keys becomes a value, or is removed (``...``)."""

    def apply(header):
        *outer, last = path
        for key in outer:
            header = header[key]
        if value is ...:
            del header[last]
        else:
            header[last] = value

    return apply


FILTER, MIX, LINEAR, KERNEL, MAXK, TWO, BANK, SCALE, BACK, SUM = (("layers", number) for number in range(10))
CHANGES = {  # of the header of the model below, and whether it is still one
    "none": (lambda header: None, True),
    "an unknown key beside": (change(("made_by",), "another tool"), True),
    "a missing frozen": (change(("frozen",), ...), True),
    "another format": (change(("format",), "onnx"), False),
    "a version to come": (change(("version",), 2), False),
    "no version": (change(("version",), ...), False),
    "a version in words": (change(("version",), "1"), False),
    "no module": (change(("module",), ...), False),
    "a module that is a number": (change(("module",), 3), False),
    "no config": (change(("config",), ...), False),
    "a config that is a list": (change(("config",), []), False),
    "no layers": (change(("layers",), ...), False),
    "layers that are an object": (change(("layers",), {}), False),
    "a layer that is a word": (change(FILTER, "filter"), False),
    "frozen that is a word": (change(("frozen",), "taps"), False),
    "frozen numbers": (change(("frozen",), [1]), False),
    "an unknown kind": (change((*FILTER, "kind"), "attention"), False),
    "no kind": (change((*FILTER, "kind"), ...), False),
    "a setting too many": (change((*FILTER, "order"), 2), False),
    "an array too many": (change((*LINEAR, "arrays", "offset"), "readout.bias"), False),
    "an array without a name": (change((*LINEAR, "arrays", "weight"), None), False),
    "no arrays": (change((*LINEAR, "arrays"), ...), False),
    "reads of another kind": (change((*MIX, "reads"), "rows"), False),
    "closed that is a number": (change((*MIX, "closed"), 1), False),
    "closed": (change((*MIX, "closed"), True), True),
    "another operation": (change((*MIX, "operation"), "min"), True),
    "a constant of none": (change((*MIX, "constants"), {"gamma": 1.0}), False),
    "constants that are a list": (change((*MIX, "constants"), []), False),
    "a constant in words": (change((*KERNEL, "constants", "gamma"), "wide"), False),
    "a constant that is a truth value": (change((*KERNEL, "constants", "gamma"), True), False),
    "an integer constant": (change((*KERNEL, "constants", "gamma"), 2), True),
    "no constant": (change((*KERNEL, "constants"), {}), False),
    "a constant of another operation": (change((*KERNEL, "constants"), {"width": 1.0}), False),
    "a k of one": (change((*MAXK, "options", "k"), 1), True),
    "a k of none": (change((*MAXK, "options", "k"), 0), False),
    "a k that is a fraction": (change((*MAXK, "options", "k"), 1.5), False),
    "max-k with rounds": (change((*MAXK, "rounds"), 1), False),
    "max-k without rounds": (change((*MAXK, "rounds"), ...), False),
    "features in words": (change((*MAXK, "features"), "3"), False),
    "another activation": (change((*MAXK, "function"), "grelu"), False),
    "a mixture of none": (change((*TWO, "options", "ops"), []), False),
    "a mixture with a parameter": (change((*TWO, "options", "ops"), ["max", "kernel"]), False),
    "another mixture": (change((*TWO, "options", "ops"), ["min", "median"]), True),
    "a mixture of no hops": (change((*TWO, "options", "hops"), 0), False),
    "a mixture that does not say closed": (change((*TWO, "options", "closed"), ...), False),
    "a mixture with the unshifted term": (change((*TWO, "options", "unshifted"), False), True),
    "a mixture with a number for it": (change((*TWO, "options", "unshifted"), 1), False),
    "an unshifted activation": (change((*MIX, "reads"), "unshifted"), True),
    "another function of a bank": (change((*BANK, "functions", 0, "operation"), "std"), True),
    "a function of a bank that is a word": (change((*BANK, "functions", 0), "max"), False),
    "a function of a bank without a name": (change((*BANK, "functions", 0, "operation"), None), False),
    "a function of a bank with a constant": (change((*BANK, "functions", 0, "constants"), {"gamma": 1.0}), False),
    "a kernel of a bank without its width": (change((*BANK, "functions", 1, "constants"), {}), False),
    "no functions of a bank": (change((*BANK, "functions"), ...), False),
    "a bank that does not say closed": (change((*BANK, "closed"), ...), False),
    "a sum without branches": (change((*SUM, "branches"), []), False),
    "a sum of a word": (change((*SUM, "branches"), ["filter"]), False),
    "a sum of numbers": (change((*SUM, "branches"), [[1]]), False),
    "a sum in a sum": (change((*SUM, "branches"), [[{"kind": "sum", "branches": [[]]}], []]), False),
    "a sum with arrays": (change((*SUM, "arrays"), {}), False),
    "a window of none": (change((*SCALE, "window"), 0), False),
    "a window that takes all memory": (change((*SCALE, "window"), 2**40), False),
    "a mask that is a number": (change((*SCALE, "mask"), 1), False),
    "a longer window without a mask": (change((*SCALE, "mask"), False), True),
    "names of nodes twice": (change((*BACK, "nodes"), ["a", "a"]), False),
    "no names of nodes": (change((*BACK, "nodes"), []), False),
    "nodes in numbers": (change((*BACK, "nodes"), [1]), False),
    "scaling without std": (change((*BACK, "arrays", "std"), ...), False),
    "rescale with a window": (change((*BACK, "window"), 1), False),
    "an unknown kind in a sum": (change((*SUM, "branches", 1, 0, "kind"), "attention"), False),
    "hashes that are a list": (change(("sha256",), []), False),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A file with a layer of each kind that has settings."""
    parts = [
        nn.GraphFilter(2, 3, order=1),
        nn.GraphAdaptive("max", features=3),
        nn.FIR([3, 3], order=0, out_features=3),
    ]
    parts += [nn.GraphAdaptiveKernel(gamma=0.5), nn.make_activation("max-k")]
    parts += [nn.make_activation("mixture-ga", ops=["max", "min"], features=3)]
    parts += [nn.AdaptiveFilterBank(3, 3, ops=["max", ("kernel", {"gamma": 0.5})])]
    parts += [nn.Standardize(1, window=3), nn.Rescale(3)]
    models = [to_model(part) for part in parts]
    described, arrays = [], {}
    for number, model in enumerate(models):
        for entry in model.description[-1:]:  # of FIR the linear layer
            names = {role: f"{number}.{name}" for role, name in entry["arrays"].items()}
            described.append({**entry, "arrays": names})
            arrays |= {f"{number}.{name}": model.parameters[name] for name in entry["arrays"].values()}
    inner = {"kind": "filter", "arrays": {"taps": "last.taps"}}
    described.append({"kind": "sum", "branches": [[], [inner]]})
    arrays["last.taps"] = np.ones((2, 3, 3), np.float32)
    whole = graphact_agents.Model("Chain", {}, arrays, described)
    save_model(whole, tmp_path_factory.mktemp("plain") / "model.safetensors")
    return next(tmp_path_factory.getbasetemp().rglob("plain*/model.safetensors"))


@pytest.mark.parametrize("name", CHANGES)
def test_agents_accept_what_the_schema_accepts(name, plain, tmp_path):
    header, arrays = read_file(plain)
    apply, expected = CHANGES[name]
    apply(header)
    header["header_sha256"] = hash_json(header, "header_sha256")
    save_file({key: np.array(value) for key, value in arrays.items()}, tmp_path / "m", {"graphact": json.dumps(header)})
    assert AGENTS.is_valid(header) == accepts(tmp_path / "m") == expected
