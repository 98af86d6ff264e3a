"""A run on the CPU measures how many threads are fastest, unless the user set a number."""

import pytest
import torch

from graphact.training import threads
from graphact_lab.cli import main


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def numbers_set(monkeypatch):
    """The numbers of threads that torch is told, in order; it is told them."""
    told, plain = [], torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda number: (told.append(number), plain(number)))
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "options", "expected"),
    [
        ({}, [], {1, 2}),
        ({"OMP_NUM_THREADS": "2"}, [], set()),
        ({"MKL_NUM_THREADS": "2"}, [], set()),
        ({}, ["--threads", "1"], {1}),
    ],
)
def test_a_run_measures_unless_it_is_told(monkeypatch, tmp_path, capsys, variables, options, expected):
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    told = numbers_set(monkeypatch)
    words = ["source-localization", "--preset", "smoke", "--activation", "relu", "--device", "cpu", "--rows-only"]
    assert main(["run", *words, "--out", str(tmp_path), *options]) == 0
    assert set(told) == expected
