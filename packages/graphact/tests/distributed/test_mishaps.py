"""Damage to the files of one process is named by all processes, and training on parts is training on the whole."""

import pytest
import torch

from support.tolerances import TOLERANCE

pytestmark = pytest.mark.slow


@pytest.fixture
def said(findings):
    """Findings of each of three processes."""
    return [findings[f"mishaps-3-{rank}"] for rank in range(3)]


@pytest.mark.parametrize(
    ("mishap", "words"),
    [
        ("missing", ["missing/part-00001-of-00003.safetensors is missing", "found by process 1"]),
        ("truncated", ["truncated/part-00002-of-00003.safetensors is truncated", "found by process 2"]),
        ("altered", ["altered/part-00000-of-00003.safetensors has been altered", "found by process 0"]),
        ("no manifest", ["no manifest/manifest.json is missing"]),
        ("altered manifest", ["altered manifest/manifest.json"]),
        ("wrong owner", ["owner must hold 40 integers, got torch.int64 of shape (3,)", "found by process 1"]),
        ("wrong inputs", ["x must have the shape (..., n, F)", "found by process 2"]),
        ("altered checkpoint", ["checkpoint: tensor", "is damaged: its SHA-256 differs from the one recorded"]),
        ("another partition", ["the folder of the partition must be the same on every process", "on process 2"]),
        ("another graph", ["graph must be the same on every process, got SHA-256", "on process 1"]),
        ("another batch", ["inputs must be the same", "nodes=(2,) on process 0", "nodes=(2, 2) on process 1"]),
        ("another precision", ["targets must be the same", "dtype=torch.float64 on process 0", "float32 on process 2"]),
        ("another model", ["model must be the same on every process", "filters.0.taps", "(3, 2, 5) on process 1"]),
        ("unused parameter", ["every parameter must be used where several processes train, got idle.weight"]),
        ("other work", ["checkpoint of other work: loss 'cross_entropy' there, 'mse' here; delete it or name another"]),
    ],
)
def test_what_one_process_finds_all_say(said, mishap, words):
    for found in said:
        assert all(word in found[mishap] for word in words), found[mishap]
        assert found[mishap] == said[0][mishap]


def test_training_equals_that_of_a_single_process(said):
    for found in said:
        assert found["distance"] < TOLERANCE[torch.float64]
        assert found["resumed"]


def test_interior_work_overlaps_the_exchange(said):
    """Values travel while the interior is worked on, in the backward pass, too."""
    for found in said:
        assert found["order"] == ["begin", "interior", "end", "boundary", "boundary", "begin", "interior", "end"]
