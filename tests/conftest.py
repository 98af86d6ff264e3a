"""Settings that all tests share."""

import hypothesis
import pytest
import torch

# Without a CUDA device there is nothing to run in this folder
collect_ignore = [] if torch.cuda.is_available() else ["gpu"]

hypothesis.settings.register_profile("graphact", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("graphact")


@pytest.fixture(autouse=True)
def _same_numbers_every_run():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _fresh_compiler_cache(tmp_path, monkeypatch):
    """Compiled code is cached under the name of an operator, which outlives a change of its gradient."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
