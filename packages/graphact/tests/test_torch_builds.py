"""Differences between builds of torch: CUDA without a driver."""

import importlib.util

import torch

from graphact.graph import handles
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
    assert again.find_object(again.new_key(graph, 3).size(0)) is graph
