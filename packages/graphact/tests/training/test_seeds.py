"""Invalid seeds are refused in one line, before anything is trained."""

from pkgutil import resolve_name

import numpy as np
import pytest

from graphact.nn import GCNN
from graphact.training import Fleet, TrainingSettings, fit
from support.general_models import make_tasks

SETTINGS = TrainingSettings(epochs=1)
BAD = [
    (1.5, TypeError, "must be an integer, got 1.5 of type float"),
    (True, TypeError, "must be an integer, got True of type bool"),
    ("7", TypeError, "must be an integer, got '7' of type str"),
    (None, TypeError, "must be an integer, got None of type NoneType"),
    (-1, ValueError, "must be at least 0, got -1"),
    (2**63, ValueError, "must be at most 9223372036854775807, got 9223372036854775808"),
]


@pytest.mark.parametrize(("seed", "error", "message"), BAD)
def test_seeds_that_are_none(seed, error, message):
    (task,) = make_tasks(1, at_node=False)
    with pytest.raises(error, match=f"^seed {message}"):
        fit(GCNN([2, 3]), task, SETTINGS, seed=seed)
    with pytest.raises(error, match=rf"^seeds\[0\] {message}"):
        Fleet([GCNN([2, 3])], [task], [seed])


@pytest.mark.parametrize("seed", [0, 2**63 - 1, np.int64(3)])
def test_seeds_that_are_some(seed):
    (task,) = make_tasks(1, at_node=False)
    alone = fit(GCNN([2, 3]), task, SETTINGS, seed=seed)
    assert alone.best_epoch == 1
    Fleet([GCNN([2, 3])], [task], [seed]).train(SETTINGS)


@pytest.mark.parametrize("seed", ["-1", str(2**63), "1.5"])
@pytest.mark.parametrize(
    ("main", "words"),
    [
        ("graphact.cli:main", ["certify", "model", "--graph", "graph.npz"]),
        ("graphact_lab.cli:main", ["run", "consensus"]),
        ("graphact_agents.command:main", ["simulate", "model", "graph.npz"]),
    ],
)
def test_every_command(main, words, seed, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = resolve_name(main)([*words, "--seed", seed])
    except SystemExit as error:  # raised by argparse
        code = error.code
    assert code == 2
    assert "--seed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
