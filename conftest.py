"""Settings that all tests share."""

import gc
from collections import Counter
from pathlib import Path

import hypothesis
import pytest
import torch

from graphact.nn.module import STARTS

# Without a CUDA device there is nothing to run in this folder
collect_ignore_glob = [] if torch.cuda.is_available() else ["packages/*/tests/gpu/*"]

hypothesis.settings.register_profile("graphact", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("graphact")

# Modules start as the ReLU that they replace, which would hide from most tests what neighbours contribute: here those
# that name no start draw uniformly. Tests of the start itself take the fixture below.
STARTS["zero"] = STARTS["uniform"]


# Functions whose cases together take more than half a second, as measured: they are marked as slow
SLOW = Path(__file__).parent / "tests" / "slow.txt"
SECONDS = 0.5
durations = Counter()


def function_of(nodeid):
    """The test of a case, without its parameters."""
    return nodeid.partition("[")[0]


def pytest_addoption(parser):
    parser.addoption("--note-slow", action="store_true", help=f"write {SLOW.name} again; for a run of all tests")


def pytest_collection_modifyitems(items):
    slow = set(SLOW.read_text().splitlines())
    for item in items:
        if function_of(item.nodeid) in slow:
            item.add_marker(pytest.mark.slow)


def pytest_runtest_logreport(report):
    durations[function_of(report.nodeid)] += report.duration


@pytest.fixture(scope="session")
def results():
    """The folder of published results."""
    folder = Path(__file__).parent / "results"
    if not folder.is_dir():
        pytest.skip("needs the published results, which a source distribution leaves out")
    return folder


@pytest.fixture
def real_start(monkeypatch):
    """The start that users get."""
    monkeypatch.setitem(STARTS, "zero", 0.0)


@pytest.fixture(scope="session", autouse=True)
def _rare_collections():
    """Tracing and compiling make so many objects that the collector would take a tenth of their time."""
    usual = gc.get_threshold()
    gc.set_threshold(50_000, *usual[1:])
    yield
    gc.set_threshold(*usual)


@pytest.fixture(scope="module", autouse=True)
def _only_new_garbage():
    """The collector leaves out what other modules left behind: late in a run that takes it seconds, each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_numbers_every_run():
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _fresh_compiler_cache(tmp_path_factory):
    """Compiled code is cached under the name of an operator, which outlives a change of its gradient."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # more are processes, each of which imports torch
        yield


def pytest_sessionfinish(session):
    """Nothing is frozen any more: libraries look for leaks when the process ends."""
    gc.unfreeze()
    if session.config.getoption("--note-slow") and not hasattr(session.config, "workerinput"):  # workers know a part
        slow = sorted(name for name, seconds in durations.items() if seconds > SECONDS)
        SLOW.write_text("".join(f"{name}\n" for name in slow))
