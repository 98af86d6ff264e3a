"""Running agents that are sent more datagrams than they can read: runs go on, deadlines hold, SIGTERM ends them."""

import signal
import sys
import time

import pytest

from agents import flood
from agents.live import Daemon, make_network
from graphact_agents import Deployment
from graphact_agents.transports.transport import BATCH_SECONDS

SLOT = 0.2
OPTIONS = ["--transport", "udp", "--period", "0.8", "--slot", str(SLOT), "--status", "0"]
SECONDS = 5.0


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="segmentation by the kernel is Linux's")
@pytest.mark.parametrize(
    ("is_forged", "content"), [(False, b"x" * 20), (True, b"GA" + bytes(58))], ids=["stranger", "as if of a neighbour"]
)
def test_a_flood_stops_no_run_and_no_signal(tmp_path, is_forged, content):
    """From one address, without a key; in the second case that of a neighbour, which is easily forged."""
    folders = make_network(tmp_path, [(0, 1)], 2, tls=False)
    nodes = [Deployment.load(folder) for folder in folders]
    port, neighbor = (node.reached.listen.port for node in nodes)
    with Daemon(folders[0], *OPTIONS) as daemon:
        daemon.results(1)
        begun = time.time()
        process = flood.start(port, SECONDS, neighbor if is_forged else 0, content)
        try:
            during = [daemon.next_event("result", timeout=3 * SECONDS) for _ in range(3)]
            assert process.poll() is None, "the flood ended before the runs"
            daemon.process.send_signal(signal.SIGTERM)
            end = daemon.next_event("end", timeout=3 * SECONDS)
            assert process.poll() is None, "the flood ended before the agent did"
            assert int(process.communicate()[0]) > 100_000
        finally:
            process.kill()
            process.wait()
    assert during[-1]["run"] - during[0]["run"] == 2
    assert all(event["seconds"] <= nodes[0].model.rounds * SLOT + BATCH_SECONDS for event in during)
    assert end["time"] - begun < SECONDS
