"""Differences between builds and releases of torch: names of its decorators, and CUDA without a driver."""

import importlib.util

import pytest
import torch

from graphact.graph import handles
from graphact.nn.unchanged import undecorated
from support.graphs import random_graph


def test_a_build_for_cuda_without_a_driver(monkeypatch):
    """Such a build raises when it is asked for its stream."""

    def fail():
        raise RuntimeError("CUDA driver version is insufficient for CUDA runtime version")

    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", fail)
    place = importlib.util.spec_from_file_location("handles_again", handles.__file__)
    again = importlib.util.module_from_spec(place)
    place.loader.exec_module(again)
    graph = random_graph()
    assert again.find_object(again.new_key(graph, 3, True).size(0)) is graph


@pytest.mark.parametrize("decorator", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_decorators_of_torch_change_nothing(decorator):
    """From release 2.14 or 2.15 on, the code of a decorated function has the name of its decorator."""

    def function(x):
        return x

    decorated = decorator()(function)
    assert undecorated(decorated) is function
    decorated.__code__ = decorated.__code__.replace(co_name=decorator.__name__, co_qualname=decorator.__name__)
    assert undecorated(decorated) is function
    decorated.__code__ = decorated.__code__.replace(co_name="other", co_qualname="other")
    assert undecorated(decorated) is decorated
