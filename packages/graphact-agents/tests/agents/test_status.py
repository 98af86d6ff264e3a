"""Running agents as operators see them: metrics, health, peers, counts that survive a crash, systemd's watchdog."""

import json
import re
import resource
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents.live import PATIENCE, Captured, Daemon, make_network
from agents.networks import undirected
from graphact import nn
from graphact_agents import Deployment, MemoryLog
from graphact_agents.addresses import Address
from graphact_agents.agent import Agent, BackToBack, Clocked
from graphact_agents.certificates import certificate_trouble, read_validity
from graphact_agents.command import main
from graphact_agents.messages import Kind
from graphact_agents.network_folder import deploy_network
from graphact_agents.status import Status, Watchdog
from graphact_agents.status_server import MAX_CONNECTIONS, REQUEST_SECONDS, StatusServer, fetch_status, metrics
from local_agents import free_addresses
from support.on_agents import deploy, split
from support.places import ROOT

PERIOD = ["--transport", "udp", "--period", "0.6", "--slot", "0.2", "--status", "0"]
DASHBOARD = ROOT / "examples" / "agents" / "grafana.json"


@pytest.fixture
def folders(tmp_path):
    return make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double())


def get(address, path):
    """Status code and text."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(text):
    """The samples of metrics, by name and labels, as Prometheus' own parser reads them."""
    families = [*text_string_to_metric_families(text)]
    assert {family.type for family in families} == {"counter", "gauge"}
    found = [(sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples]
    values = [sample.value for family in families for sample in family.samples]
    assert len(set(found)) == len(found)
    return dict(zip(found, values, strict=True))


def value_of(found, name, **labels):
    wanted = [
        value
        for (found_name, *pairs), value in found.items()
        if found_name == f"graphact_{name}" and labels.items() <= dict(pairs).items()
    ]
    assert len(wanted) == 1
    return wanted[0]


def example_status(**changes):
    counters = Agent(*agent_arguments()).counters
    fields = dict(
        node=3, deployment="00ff", transport="udp", run=7, alive=True, reason="", seconds_since_run=0.5, started=1e9
    )
    peers = {1: {"heard_seconds_ago": None, "missed_runs": 2, "neighbor": True, "refused": "why"}}
    return Status(**(fields | {"counters": counters, "peers": peers} | changes))


def agent_arguments():
    class Nothing:
        dropped = {"strangers": 4, "overflow": 2}  # noqa: RUF012

    deployment = deploy(nn.FIR([1, 1], order=1), undirected([(0, 1)], 2))[0]
    return deployment, Nothing(), MemoryLog(), None, Clocked(0.0, 1.0), print


def test_metrics_are_of_the_format():
    found = samples(metrics(example_status()).decode())
    assert value_of(found, "refused_total", reason="strangers") == 4
    assert value_of(found, "refused_total", reason="overflow") == 2
    assert value_of(found, "peer_missed_runs_total", peer="1", node="3") == 2
    assert value_of(found, "peer_refused", peer="1") == 1
    assert value_of(found, "run_number") == 7


def test_the_dashboard_shows_metrics_that_exist():
    peer = dict(heard_seconds_ago=1.0, missed_runs=0, neighbor=True, refused="")
    names = {name for name, *_ in samples(metrics(example_status(peers={1: peer})).decode())}
    shown = {*re.findall(r"graphact_[a-z_]+", DASHBOARD.read_text())}
    assert len(json.loads(DASHBOARD.read_text())["panels"]) >= 8
    assert shown <= names
    assert len(shown) >= 10


def test_a_running_agent_tells(folders, capsys):
    with Daemon(folders[0], *PERIOD) as first, Daemon(folders[1], *PERIOD) as second:
        address = first.next_event("ready")["status"]
        second.next_event("ready")
        event = first.next_event("result", where=lambda event: event["complete"])
        assert abs(event["time"] - time.time()) < PATIENCE
        found = samples(get(address, "/metrics")[1])
        assert value_of(found, "runs_total", outcome="complete") >= 1
        assert value_of(found, "links_total", state="used") >= 1
        assert value_of(found, "peer_heard_seconds", peer="1") < PATIENCE
        assert value_of(found, "agent_start_time_seconds") < time.time()
        assert get(address, "/healthz") == (200, "healthy\n")
        status = json.loads(get(address, "/status")[1])
        assert status["peers"]["1"]["refused"] == ""
        assert status["run"] >= event["run"]
        assert get(address, "/nothing")[0] == 404
        assert main(["status", str(folders[0].parent)]) == 0
        rows = capsys.readouterr().out.splitlines()
        assert [row.split()[0] for row in rows] == ["agent", "node-0", "node-1"]
        second.kill()
        assert main(["status", "--json", str(folders[0]), str(folders[1])]) == 1
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert lines[0]["node"] == 0
        assert "unreachable" in lines[1]


def test_neighbors_that_are_refused_are_trouble(folders, capsys):
    with Captured(folders[1], slot=0.3, period=0.6) as other, Daemon(folders[0], *PERIOD) as daemon:  # another slot
        daemon.next_event("ready")
        other.send_value(0, 0, kind=Kind.HELLO)
        daemon.next_event("refused")
        assert main(["status", str(folders[0])]) == 1
        assert "its model, slot, period, origin or dynamic differs" in capsys.readouterr().out


def test_an_agent_whose_loop_stands_still_is_not_healthy():
    agent = Agent(*agent_arguments())
    with closing(StatusServer(Address("127.0.0.1", 0), lambda: agent.status("udp"))) as server:
        assert get(server.address, "/healthz")[0] == 200
        agent.tally.beat -= 7
        code, text = get(server.address, "/healthz")
        assert code == 503
        assert text.startswith("the loop of the agent has stood still for 7.")
    with pytest.raises(OSError, match=r"refused|reset"):
        fetch_status(server.address)


def test_who_asks_badly_is_cut_off_and_stops_nobody(folders):
    with Daemon(folders[0], *PERIOD) as daemon, Daemon(folders[1], *PERIOD) as other:
        address = Address.parse(daemon.next_event("ready")["status"])
        other.next_event("result", where=lambda event: event["complete"])
        silent = [socket.create_connection((address.host, address.port)) for _ in range(4)]
        for hostile in (b"\0" * 100_000, b"GET\r\n\r\n", b"GET /metrics HTTP/1.1\r\n" + b"x" * 5000, b"\r\n\r\n", b""):
            with socket.create_connection((address.host, address.port)) as connection:
                try:
                    connection.sendall(hostile)
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # cut off already
        daemon.results(2)
        assert get(str(address), "/healthz")[0] == 200
        for connection in silent:
            connection.close()


def test_silent_connections_keep_no_operator_out(folders):
    with Daemon(folders[0], *PERIOD) as daemon, ExitStack() as opened:
        address = Address.parse(daemon.next_event("ready")["status"])
        for count in (MAX_CONNECTIONS // 2, 2 * MAX_CONNECTIONS):  # as many as it holds, and more
            for _ in range(count):
                opened.enter_context(socket.create_connection((address.host, address.port)))
            begun = time.monotonic()
            assert fetch_status(address)["node"] == 0
            assert time.monotonic() - begun < REQUEST_SECONDS


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are Linux's")
def test_a_moment_without_descriptors_ends_no_status(folders):
    with Daemon(folders[0], *PERIOD) as daemon:
        address, pid = Address.parse(daemon.next_event("ready")["status"]), daemon.process.pid
        assert fetch_status(address)["node"] == 0
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = max(int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir()) + 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, limits[1]))
        with socket.create_connection((address.host, address.port)) as waiting:
            waiting.settimeout(0.5)
            with pytest.raises(TimeoutError):
                waiting.recv(1)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            assert fetch_status(address)["node"] == 0


def answer_once(body):
    """A server that answers one request with this body; its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        with server, server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + body)

    threading.Thread(target=serve).start()
    return server.getsockname()[1]


@pytest.mark.parametrize(
    "body",
    [b'{"node": 1, "trouble": []}', b"[]", b"null", b"[" * 100_000, b"\xff", b'{"node": "x"}', b'{"node": 1e999}'],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_no_status_is_told_in_one_line(body, capsys):
    port = answer_once(body)
    assert main(["status", f"127.0.0.1:{port}"]) == 1
    _, row = capsys.readouterr().out.splitlines()
    assert row.endswith(f"no answer from 127.0.0.1:{port}")


def test_a_status_cannot_speak_to_the_terminal(capsys):
    status = example_status(trouble=["\x1b]0;owned\x07\x1b[31mred\u202e"])
    assert main(["status", f"127.0.0.1:{answer_once(status.to_json())}"]) == 1
    _, row = capsys.readouterr().out.splitlines()
    assert row.endswith("?]0;owned??[31mred?")
    assert main(["status", "--json", f"127.0.0.1:{answer_once(status.to_json())}"]) == 1
    assert capsys.readouterr().out.strip().isprintable()


def test_an_error_of_the_status_ends_no_status():
    found = [RuntimeError("dictionary changed size during iteration"), example_status()]

    def ask():
        status = found.pop(0)
        if isinstance(status, Exception):
            raise status
        return status

    with closing(StatusServer(Address("127.0.0.1", 0), ask)) as server:
        assert get(server.address, "/status") == (500, "RuntimeError: dictionary changed size during iteration\n")
        assert get(server.address, "/status")[0] == 200


def test_without_prometheus_client_metrics_alone_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with closing(StatusServer(Address("127.0.0.1", 0), example_status)) as server:
        code, text = get(server.address, "/metrics")
        assert code == 501
        assert text.endswith("pip install 'graphact-agents[metrics]'\n")
        assert fetch_status(server.address)["node"] == 3


def test_systemd_hears_of_a_living_agent(folders, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
        with Daemon(folders[0], *PERIOD, environment=environment) as daemon:
            daemon.next_event("ready")
            assert systemd.recv(100) == b"READY=1"
            assert [systemd.recv(100) for _ in range(4)] == [b"WATCHDOG=1"] * 4
            daemon.process.send_signal(signal.SIGTERM)
            while (told := systemd.recv(100)) != b"STOPPING=1":
                assert told == b"WATCHDOG=1"
    unwatched = Watchdog({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    unwatched.beat(0.0)  # another process is watched
    assert unwatched._next == 0.0


def test_addresses_of_the_status(folders, capsys):
    assert main(["status", str(folders[0])]) == 2
    assert "status.json is missing: no agent was started here with --status" in capsys.readouterr().err
    assert main(["run", str(folders[0]), *PERIOD[:-1], "127.0.0.1:x"]) == 2
    assert "an address must be host:port" in capsys.readouterr().err
    taken = Deployment.load(folders[0]).reached.listen
    with socket.create_server((taken.host, taken.port)):
        assert main(["run", str(folders[0]), *PERIOD[:-1], str(taken.port)]) == 2
    assert "cannot listen on" in capsys.readouterr().err


@pytest.mark.slow
def test_the_operators_folder_asks_each_node_at_its_own_host(tmp_path, capsys):
    """And tells who answers there instead, and which nodes are of another deployment."""
    port, own = (address.port for address in free_addresses(2))
    places = [f"127.0.0.1:{own}", f"127.0.0.2:{own}"]
    settings = {"transport": "udp", "period": 0.8, "slot": 0.2, "sensor": "echo 1"}
    model, graph = nn.FIR([1, 1], order=1).double(), undirected([(0, 1)], 2)
    folders = split(model, graph, tmp_path / "nodes", places, **settings, status=f"0.0.0.0:{port}")
    network = str(tmp_path / "nodes.network")
    with ExitStack() as opened:
        for i, folder in enumerate(folders):
            words = ["--sensor", "echo 1", "--status", f"127.0.0.{i + 1}:{port}"]
            daemon = opened.enter_context(Daemon(folder, *words))
            daemon.next_event("ready")
        daemon.next_event("result", where=lambda event: event["complete"])
        assert main(["status", "--json", network]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [each["node"] for each in found] == [0, 1]
        deploy_network(Path(network), tmp_path / "again")
        assert main(["status", network]) == 1
        head, *rows = capsys.readouterr().out.splitlines()
        assert head.split()[0] == "agent"
        assert all(f"of deployment {found[0]['deployment']}, not " in row for row in rows)
        file = tmp_path / "nodes.network" / "network.toml"
        text = file.read_text().replace(f'status = "0.0.0.0:{port}"', "")
        file.write_text(f'{text}\nstatus = "127.0.0.1:{port}"\n')  # of the last node
        assert main(["status", network]) == 1
        assert f"another agent, of node 0, answers at 127.0.0.1:{port}" in capsys.readouterr().out


def test_a_sensor_that_fails_at_every_run_is_trouble(folders, capsys):
    options = [*PERIOD, "--sensor", "echo broken >&2; exit 3"]
    with Daemon(folders[0], *options) as first, Daemon(folders[1], *PERIOD) as second:
        address, other = (daemon.next_event("ready")["status"] for daemon in (first, second))
        [first.next_event("skipped") for _ in range(3)]
        [second.next_event("result") for _ in range(4)]
        code, text = get(address, "/healthz")
        assert code == 503
        assert text.startswith("none of the last 3 runs was complete (3 skipped: ")
        assert get(other, "/healthz")[1].startswith("none of the last 3 runs was complete (3 incomplete)\n")
        assert main(["status", address, other]) == 1
        rows = capsys.readouterr().out.splitlines()[1:]
        assert ["none of the last 3 runs was complete" in row for row in rows] == [True, True]
        found = samples(get(address, "/metrics")[1])
        assert value_of(found, "agent_trouble") >= 1
        assert (value_of(found, "agent_healthy"), value_of(found, "agent_alive")) == (0, 1)
        status = json.loads(get(address, "/status")[1])
        assert (status["healthy"], status["alive"]) == (False, True)


def test_no_run_for_long_is_trouble():
    agent = Agent(*agent_arguments())
    agent.tally.ended -= 7  # of a clock with a period of a second; its first run may be far ahead
    assert agent.status("udp").trouble == []
    agent.tally.end(0.0, "complete", "")
    assert agent.status("udp").trouble == []
    agent.tally.ended -= 7
    assert agent.status("udp").trouble == ["no run for 7 s"]
    deployment, *others = agent_arguments()
    waiting = Agent(deployment, *others[:-2], BackToBack(0.0), print)
    waiting.tally.waits = "the sensor command has not ended in time"
    waiting.tally.ended -= 59
    assert waiting.status("udp").trouble == []
    waiting.tally.ended -= 2
    assert waiting.status("udp").trouble == ["no run for 61 s: the sensor command has not ended in time"]


def test_peers_that_are_not_heard_are_trouble(folders):
    with Daemon(folders[0], *PERIOD) as daemon:
        address = daemon.next_event("ready")["status"]
        daemon.results(3)
        text = get(address, "/healthz")[1]
        assert "not heard in the last 3 runs: node 1\n" in text
        with Daemon(folders[1], *PERIOD) as other:
            other.next_event("result", where=lambda event: event["complete"])
            daemon.next_event("result", where=lambda event: event["complete"])
            assert get(address, "/healthz") == (200, "healthy\n")


def test_an_origin_in_the_future_is_trouble(folders):
    with Daemon(folders[0], *PERIOD, "--origin", str(time.time() + 3600)) as daemon:
        code, text = get(daemon.next_event("ready")["status"], "/healthz")
        assert code == 503
        assert re.fullmatch(r"the first run, at its origin, is in 3[56]\d\d s\n", text)


def test_a_running_agent_tells_that_its_certificate_ends_soon(folders):
    """Its clock is a year ahead, as the certificates see it."""
    code = "import sys; from graphact_agents import certificates, command_run; "
    code += "command_run.certificate_trouble = lambda v, now: certificates.certificate_trouble(v, now + 365 * 86_400); "
    code += "from graphact_agents.command import main; sys.exit(main(sys.argv[1:]))"
    options = [*PERIOD, "--transport", "zenoh", "--tls"]
    with Daemon(folders[0], *options, command=("-c", code)) as daemon:
        code, text = get(daemon.next_event("ready")["status"], "/healthz")
    assert code == 503
    assert "its certificate has ended; deploy again" in text or "its certificate ends in" in text


@pytest.mark.parametrize("days", [1, 365])
def test_a_certificate_that_ends_soon_is_trouble(tmp_path, days):
    """A tenth of its days before it ends; it is valid from a day before it was made."""
    model = nn.FIR([1, 1], order=1).double()
    settings = dict(transport="zenoh", valid_days=days, slot=0.2, period=2.0)
    folder = split(model, undirected([(0, 1)], 2), tmp_path / "nodes", addresses=free_addresses(2), **settings)[0]
    made, ends = validity = read_validity(folder / "tls")
    assert abs(ends - made - (days + 1) * 86_400) < 60
    assert certificate_trouble(validity, time.time()) == []
    (soon,) = certificate_trouble(validity, ends - 3600)
    assert soon.startswith("its certificate ends in 1.0 hours")
    (over,) = certificate_trouble(validity, ends + 1)
    assert over.startswith("its certificate has ended")
