"""Model files: exact, safe, and clear about what is damaged."""

import json
import struct

import pytest
import torch

import graphact
from graphact import nn
from graphact.files import header_digest
from support.graphs import random_graph

MODELS = {
    "gcnn": lambda: nn.GCNN([1, 4, 3], order=[2, 1], activation="kernel-ga", hops=2, learn_gamma=True, bias=True),
    "gcnn-shared": lambda: nn.GCNN([1, 4], activation="median-ga", per_feature=False, out_features=None, closed=True),
    "fir": lambda: nn.FIR([1, 4], order=3, readout_bias=False),
    "gcnn on PyG's operator": lambda: nn.GCNN([1, 4], normalize="gcn"),
    "fir on given weights": lambda: nn.FIR([1, 4], normalize=None),
    "max-ga on given weights": lambda: nn.GraphAdaptiveMax(normalize=None),
    "filter": lambda: nn.GraphFilter(1, 2, order=3, bias=True),
    "kernel": lambda: nn.GraphAdaptiveKernel(gamma=0.3),
    "min": lambda: nn.GraphAdaptive("min", hops=2, features=1),
    **{name: lambda name=name: nn.make_activation(name, features=1, hops=2) for name in nn.ACTIVATIONS},
    **{f"gcnn of {name}": lambda name=name: nn.GCNN([1, 4, 3], activation=name, hops=2) for name in nn.ACTIVATIONS},
}


def header_of(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def rewrite(path, change):
    """Change the JSON that describes the model, leaving the tensors alone."""
    outer, tensors = header_of(path)
    inner = json.loads(outer["__metadata__"]["graphact"])
    change(inner)
    if "header_sha256" in inner:
        inner["header_sha256"] = header_digest(inner)
    outer["__metadata__"]["graphact"] = json.dumps(inner)
    head = json.dumps(outer).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + tensors)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    graphact.save(MODELS["gcnn"](), path)
    return path


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_round_trip(name, dtype, tmp_path):
    model = MODELS[name]().to(dtype)
    graphact.save(model, tmp_path / "new folder" / "model.safetensors")
    loaded = graphact.load(str(tmp_path / "new folder" / "model.safetensors"))
    assert type(loaded) is type(model)
    assert loaded.config() == model.config()
    assert repr(loaded) == repr(model)
    assert all(
        torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(model.parameters(), loaded.parameters(), strict=True)
    )
    graph, x = random_graph(dtype=dtype), torch.randn(2, 12, 1, dtype=dtype)
    assert torch.equal(loaded(x, graph), model(x, graph))
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert [path.name for path in (tmp_path / "new folder").iterdir()] == ["model.safetensors"]


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model file at .*nothing"):
        graphact.load(tmp_path / "nothing")


@pytest.mark.parametrize("keep", [0, 4, 50, 0.5, -1])
def test_truncated(saved, keep):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * keep)] if isinstance(keep, float) else content[:keep])
    with pytest.raises(ValueError, match="not a readable safetensors file, perhaps truncated"):
        graphact.load(saved)


def test_every_flipped_byte_is_noticed(saved):
    """A flipped byte is an error or harmless (white space); it never changes the model silently."""
    content = saved.read_bytes()
    model = graphact.load(saved)
    original, config = model.state_dict(), model.config()
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 0x15
        saved.write_bytes(damaged)
        try:
            loaded = graphact.load(saved)
        except ValueError:
            continue
        assert loaded.config() == config
        assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in original.items())


def test_a_changed_setting_is_noticed(saved):
    content = saved.read_bytes()
    changed = content.replace(b'"gamma\\": 0.1', b'"gamma\\": 0.9').replace(b'gamma\\": 0.1', b'gamma\\": 0.9')
    assert changed != content
    saved.write_bytes(changed)
    with pytest.raises(ValueError, match="the header is damaged"):
        graphact.load(saved)


def test_a_damaged_tensor_is_named(saved):
    content = bytearray(saved.read_bytes())
    content[-1] ^= 1
    saved.write_bytes(content)
    with pytest.raises(ValueError, match=r"tensor '[\w.]+' is damaged: its SHA-256 differs"):
        graphact.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(version=99), "format version must be 1, got 99"),
        (lambda h: h.update(format="other"), "without the header of a graphact model"),
        (lambda h: h.update(module="os.system"), "module must be one of .* got 'os.system'"),
        (lambda h: h.update(module=["GCNN"]), "module must be one of"),
        (lambda h: h.update(config=[1]), "config must be a JSON object, got list"),
        (lambda h: h["config"].update(extra=1), "configuration of GCNN is not valid: .*extra"),
        (lambda h: h["config"].update(activation="__import__('os')"), "configuration of GCNN is not valid: activation"),
        (lambda h: h["config"].update(features=[1, 10**9, 10**9]), "should have the shape|not valid"),
        (lambda h: h["config"].update(features=[1, 10**30, 3]), "not valid|should have the shape"),
        (lambda h: h["config"].update(features={"a": 1}), "not valid"),
        (lambda h: h["config"].update(hops=3), "should have the shape"),
        (lambda h: h["config"].update(bias=False), "is on one side only"),
        (lambda h: h.update(sha256={}), "is damaged"),
        (lambda h: h.update(sha256=None), "the header is damaged"),
        (lambda h: h.pop("header_sha256"), "the header is damaged"),
        (lambda h: h["config"].update(features=[1] * 20000), "has 19999 layers, the file"),
    ],
)
def test_hostile_headers(saved, change, message):
    rewrite(saved, change)
    with pytest.raises(ValueError, match=message):
        graphact.load(saved)


def test_other_safetensors_file(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="without the header of a graphact model"):
        graphact.load(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (torch.nn.Linear(2, 2), "model must be one of .* got Linear"),
        (nn.GraphAdaptive(lambda neighbors: neighbors.sum(-2)), "holds a Python function"),
    ],
)
def test_what_cannot_be_saved(model, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        graphact.save(model, tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_model_of_several_dtypes_is_refused(saved):
    """It could be written, and not be read."""
    before, model = saved.read_bytes(), MODELS["gcnn"]()
    model.readout.double()
    with pytest.raises(TypeError, match="must have one dtype to be saved, got torch.float32, torch.float64"):
        graphact.save(model, saved)
    assert saved.read_bytes() == before
    for dtype in (torch.float64, torch.bfloat16):
        graphact.save(model.to(dtype), saved)
        assert {tensor.dtype for tensor in graphact.load(saved).state_dict().values()} == {dtype}


def test_a_failed_write_keeps_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        graphact.save(MODELS["fir"](), saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_an_activation_whose_constructor_knows_no_normalisation(tmp_path):
    @nn.register("double-max-ga")
    class DoubleMax(nn.GraphAdaptiveMax):
        def __init__(self, features=None, *, hops=2):
            super().__init__(features=features, hops=hops)

        def config(self):
            return {key: value for key, value in super().config().items() if key != "closed"}

    try:
        model = nn.GCNN([2, 3], activation="double-max-ga", hops=2)
        for part in (model, model.activations[0]):
            graphact.save(part, tmp_path / "model.safetensors")
            assert graphact.load(tmp_path / "model.safetensors").config() == part.config()
    finally:
        nn.unregister("double-max-ga")


def test_parameters_that_stand_in_two_places_are_named(tmp_path):
    """safetensors raises several lines, and agents that learn would take the gradient of one place for both."""
    model = nn.GCNN([4, 4, 4], order=1, activation="max-ga")
    model.filters[1] = model.filters[0]
    with pytest.raises(TypeError, match=r"filters\.1\.taps: it is the same parameter as filters\.0\.taps"):
        graphact.save(model, tmp_path / "model.safetensors")
    assert not [*tmp_path.iterdir()]
