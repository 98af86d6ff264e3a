"""A radius that cannot be used is refused, not ignored."""

import pytest

from graphact.cli import main


@pytest.mark.parametrize(
    ("radius", "message"), [("-1", "--radius must be a finite number above 0"), ("0.1", "--radius needs --signals")]
)
def test_a_radius_that_cannot_be_used(capsys, radius, message):
    assert main(["certify", "model.safetensors", "--graph", "graph.txt", "--radius", radius]) == 2
    assert message in capsys.readouterr().err
