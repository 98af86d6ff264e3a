"""Invalid seeds are refused in one line by tasks and by the command."""

import pytest

from graphact_lab.cli import main
from graphact_lab.tasks import consensus


@pytest.mark.parametrize(
    ("seed", "error"), [(1.5, TypeError), (True, TypeError), (None, TypeError), (-1, ValueError), (2**63, ValueError)]
)
def test_tasks(seed, error):
    with pytest.raises(error, match="^seed must be"):
        consensus(seed=seed)


@pytest.mark.parametrize("seed", ["-1", str(2**63), "1.5"])
def test_run(seed, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["run", "consensus", "--seed", seed])
    except SystemExit as error:  # raised by argparse
        code = error.code
    assert code == 2
    assert "--seed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
