"""Agents as real processes: killed, stopped, and with packets that the kernel drops."""

import json
import subprocess
import threading

import pytest

from agents.real_faults import (
    BOUNDS,
    Deployed,
    in_a_namespace,
    long_model,
    random_graph,
    suffer,
    why_not_allowed,
)

pytestmark = pytest.mark.slow

FAULTS = ["kill", "stop", "kill"]


@pytest.mark.slow
def test_killed_and_stopped_agents_spoil_one_inference_each_at_most(tmp_path):
    """Over UDP and over Zenoh, at the same time since most of it is waiting."""
    suffered = {}

    def endure(transport):
        deployed = Deployed(tmp_path / transport, random_graph(5, 7), long_model())
        suffered[transport] = suffer(deployed, transport, FAULTS, period=2.5, slot=0.05)

    threads = [threading.Thread(target=endure, args=(transport,)) for transport in ("udp", "zenoh")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(suffered) == {"udp", "zenoh"}, "see the traceback of the thread"
    for transport, result in suffered.items():
        assert set(result["incomplete"]) <= set(result["hurt"]), (transport, result)
    hit = sum(len(result["incomplete"]) for result in suffered.values())
    assert hit > 0, "no fault fell into a run: the test shows nothing"


@pytest.mark.skipif((reason := why_not_allowed()) is not None, reason=str(reason))
def test_links_missed_under_real_packet_loss():
    arguments = ["loss", "--inside", "--transport", "udp", "--nodes", "10", "--edges", "45", "--runs", "6"]
    done = subprocess.run(in_a_namespace(arguments), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    levels = {float(level): measured for level, measured in json.loads(done.stdout)["levels"].items()}
    assert list(levels) == list(BOUNDS)
    for level, measured in levels.items():
        assert measured["dropped"] == pytest.approx(level, rel=0.3), "the kernel did not drop what it was told to"
        assert measured["absent"] == 0
        assert measured["links"] == 6 * 3 * 90
        assert measured["share"] <= BOUNDS[level], (level, measured)
