"""One file for a whole network, the recipes in deploy/."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import graphact
from agents.live import Daemon, make_network
from agents.networks import undirected
from graphact import nn
from graphact_agents.addresses import Addresses, free_addresses
from graphact_agents.command import main, make_parser
from graphact_agents.command_run import DEFAULTS, read_network
from graphact_agents.network import SETTINGS, NetworkFile
from support.places import ROOT

DEPLOY = ROOT / "deploy"


def write(path, text):
    path.write_text(text)
    return path


def test_settings_of_a_node_go_before_those_of_the_network(tmp_path):
    text = '[network]\nfolder = "at/node-{node}"\nslot = 1\nrepeat = true\n[nodes.3]\nslot = 0.5\n[nodes.12]\n'
    file = NetworkFile.load(write(tmp_path / "n.toml", text))
    assert file.settings(3) == {"folder": "at/node-3", "slot": 0.5, "repeat": True}
    assert file.settings(12) == {"folder": "at/node-12", "slot": 1.0, "repeat": True}
    with pytest.raises(ValueError, match=r"node must be one of \[3, 12\], got 4"):
        file.settings(4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[network", "not valid TOML"),
        ("[network]\n", "nodes must be tables by number"),
        ("[nodes.x]\n", "nodes must be tables by number"),
        ("[nodes.1]\n[nodes.01]\n", "nodes must be tables by number"),
        ("[other]\n[nodes.0]\n", "other is no setting"),
        ("[network]\nslott = 1\n[nodes.0]\n", "network.slott is no setting"),
        ('[network]\nslot = "1"\n[nodes.0]\n', "network.slot must be a float, got '1'"),
        ("[network]\nrepeat = 1\n[nodes.0]\n", "network.repeat must be a bool, got 1"),
        ("[nodes]\n0 = 1\n", "nodes.0 must be a table, got 1"),
        ('[nodes.0]\naddress = "here"\n', "an address must be host:port"),
        ("\xff", "not valid TOML"),
    ],
)
def test_damaged_files_are_told_in_one_line(tmp_path, text, reason, capsys):
    path = tmp_path / "n.toml"
    path.write_bytes(text.encode("latin-1"))
    assert main(["run", "--network", str(path), "--node", "0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_all_settings_are_options(tmp_path):
    values = {"transport": "=udp"}
    arguments = [
        f"--{name}" + ("" if kind is bool else values.get(name, "=1"))
        for name, kind in SETTINGS.items()
        if name != "sensor"
    ]
    options = make_parser().parse_args(["run", "x", *arguments])
    assert all(getattr(options, name) not in (None, False) for name in SETTINGS if name != "sensor")


def options_of(path, *words):
    options = make_parser().parse_args(["run", "--network", str(path), "--node", "0", *words])
    read_network(options)
    return options


def test_the_command_line_goes_before_the_file(tmp_path):
    """Also where it says what holds without it."""
    settings = 'transport = "udp"\nperiod = 7.0\nslot = 0.5\norigin = 3.0\nlead = 2.0\ntls = true\n'
    settings += 'repeat = true\ndynamic = true\ndurable = true\nsensor = "echo [9]"\nfolder = "x"\n'
    file = write(tmp_path / "n.toml", f"[network]\n{settings}[nodes.0]\n")
    values = ["--transport=zenoh", "--period=0", "--slot=0.18", "--origin=0", "--lead=0.5", "--signals=-"]
    flags = ["tls", "repeat", "dynamic", "durable"]
    said = vars(options_of(file, *values, *(f"--no-{name}" for name in flags)))
    numbers = {"transport": "zenoh", "period": 0.0, "slot": 0.18, "origin": 0.0, "lead": 0.5, "signals": "-"}
    assert {name: said[name] for name in (*numbers, "sensor", *flags)} == {
        **numbers,
        "sensor": None,
        **dict.fromkeys(flags, False),
    }
    unsaid = vars(options_of(file))
    assert {name: unsaid[name] for name in ("transport", "period", "slot", "sensor")} == {
        "transport": "udp",
        "period": 7.0,
        "slot": 0.5,
        "sensor": "echo [9]",
    }
    plain = vars(options_of(write(tmp_path / "plain.toml", '[network]\nfolder = "x"\n[nodes.0]\n')))
    assert {name: plain[name] for name in DEFAULTS} == DEFAULTS
    assert plain["period"] is plain["tls"] is None


def test_one_source_of_signals_the_nearest_to_the_node(tmp_path):
    text = '[network]\nfolder = "x"\nsensor = "echo 1"\n[nodes.0]\nsignals = "mine.npy"\n[nodes.1]\n'
    file = write(tmp_path / "n.toml", text)
    assert (options_of(file).signals, options_of(file).sensor) == ("mine.npy", None)
    said = options_of(file, "--sensor", "echo 2")
    assert (said.signals, said.sensor) == ("-", "echo 2")  # the sensor goes before, as without a file
    assert NetworkFile.load(file).settings(1)["sensor"] == "echo 1"
    write(file, '[nodes.0]\nsignals = "x"\nsensor = "y"\n')
    with pytest.raises(ValueError, match="signals and sensor exclude each other"):
        NetworkFile.load(file)


def test_addresses_for_split(tmp_path, capsys):
    graphact.save(nn.FIR([1, 1], order=1).double(), tmp_path / "m.safetensors")
    undirected([(0, 1)], 2).save(tmp_path / "g.npz")
    arguments = ["split", str(tmp_path / "m.safetensors"), str(tmp_path / "g.npz"), "--no-tls"]
    file = write(tmp_path / "n.toml", '[nodes.0]\naddress = "10.0.0.1:70"\n[nodes.1]\naddress = "10.0.0.2:70"\n')
    assert main([*arguments, "--out", str(tmp_path / "nodes"), "--network", str(file)]) == 0
    assert str(Addresses.load(tmp_path / "nodes" / "node-1", (0,)).neighbors[0]) == "10.0.0.1:70"
    assert "1 rounds, 2 messages, 128 bytes in all, at most 0.18 s (slot 0.18 s)" in capsys.readouterr().out
    slow = write(tmp_path / "slow.toml", f"[network]\nslot = 0.8\n{file.read_text()}")
    assert main([*arguments, "--out", str(tmp_path / "slow"), "--network", str(slow)]) == 0
    assert "at most 0.80 s (slot 0.8 s)" in capsys.readouterr().out
    for text, reason in [
        ("[nodes.0]\n", "an address for each"),
        (file.read_text().replace("0.2", "0.1"), "the same address"),
    ]:
        write(file, text)
        assert main([*arguments, "--out", str(tmp_path / "again"), "--network", str(file)]) == 2
        assert reason in capsys.readouterr().err


@pytest.mark.slow
def test_a_network_runs_from_one_file(tmp_path, capsys):
    folders = make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double())
    ports = [address.port for address in free_addresses(2)]
    nodes = "".join(f'[nodes.{i}]\nsignals = "{folders[i]}/x.npy"\nstatus = "{ports[i]}"\n' for i in range(2))
    shared = f'[network]\nfolder = "{tmp_path}/nodes/node-{{node}}"\ntransport = "udp"\nperiod = 0.8\n'
    file = write(tmp_path / "network.toml", f"{shared}slot = 0.2\nrepeat = true\n{nodes}")

    def start(i):
        command = ["-c", "import sys; from graphact_agents.command import main; sys.exit(main(['run', *sys.argv[5:]]))"]
        return Daemon(folders[i], "--signals", "-", "--network", str(file), "--node", str(i), command=command)

    with start(0) as first, start(1) as second:
        for daemon in (first, second):
            daemon.next_event("result", where=lambda event: event["complete"])
        assert main(["status", str(file)]) == 0
        assert [row.split()[0] for row in capsys.readouterr().out.splitlines()] == ["agent", "node-0", "node-1"]


def test_the_file_and_its_node_belong_together(tmp_path, capsys):
    for arguments in (["--node", "3"], []):
        assert main(["run", *arguments]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_example_of_deploy():
    file = NetworkFile.load(DEPLOY / "network.toml")
    assert file.settings(1)["folder"] == "/var/lib/graphact/node-1"
    assert len(file.addresses(2)) == 2


def test_the_unit_runs_a_command_that_exists():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / "graphact-agent@.service")
    words = shlex.split(unit["Service"]["ExecStart"])
    options = make_parser().parse_args([*words[1:-1], "7"])
    assert (options.network, options.node) == (Path("/etc/graphact/network.toml"), 7)
    assert unit["Service"]["Type"] == "notify"
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", DEPLOY / "graphact-agent@.service"], capture_output=True, check=False
        )
        assert b"Unknown" not in done.stderr


def test_the_container_installs_what_an_agent_needs():
    text = (DEPLOY / "Containerfile").read_text()
    project = tomllib.loads((ROOT / "packages" / "graphact-agents" / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["zenoh"]]
    named = set(re.findall(r"'([a-z-]+>=[\d.]+)'", text))
    assert named == {each for each in wanted if not each.startswith("cryptography")}  # which deploying needs
    entry, command = (
        json.loads(re.search(rf"^{word} (\[.*\])$", text, re.MULTILINE)[1]) for word in ("ENTRYPOINT", "CMD")
    )
    assert make_parser().parse_args([*entry[1:], *command]).status == "9107"


@pytest.mark.slow
def test_the_container_is_healthy_as_its_recipe_starts_it(tmp_path):
    """Entry point, the documented arguments and the health check, with the paths of this machine."""
    pytest.importorskip("cryptography")
    text = (DEPLOY / "Containerfile").read_text()
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)[1])
    check = json.loads(re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)[1])
    lines = [shlex.split(words) for words in re.findall(r"podman run .* graphact-agent (.*)", text)]
    assert len(lines) == 2
    folders = make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double())
    shared = '[network]\ntransport = "udp"\nperiod = 60.0\nrepeat = true\n'
    signals = f"signals = '{folders[1]}/x.npy'\n"
    file = write(tmp_path / "network.toml", f'{shared}status = "1"\n[nodes.7]\n{signals}')
    port = str(free_addresses(1)[0].port)
    for folder, words in zip(folders, lines, strict=True):
        here = {"/node": str(folder), "/network.toml": str(file), "/node/x.npy": str(folder / "x.npy"), "9107": port}
        started = [
            sys.executable,
            "-m",
            "graphact_agents.command",
            *(here.get(word, word) for word in [*entry[1:], *words]),
        ]
        with subprocess.Popen(started, stdout=subprocess.PIPE) as agent:
            try:
                event = json.loads(agent.stdout.readline())
                assert (event["status"], event["encrypted"]) == (f"127.0.0.1:{port}", False)
                asked = [sys.executable, "-m", "graphact_agents.command", *(here.get(word, word) for word in check[1:])]
                assert subprocess.run(asked, capture_output=True, check=False).returncode == 0
            finally:
                agent.kill()


@pytest.mark.slow
def test_status_asks_each_node_at_its_own_host(tmp_path, capsys):
    """One shared port of the loopback: the agent that answers there is node 0, and no other."""
    folders = make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double())
    port = free_addresses(1)[0].port
    shared = f'[network]\nstatus = "{port}"\n[nodes.0]\naddress = "127.0.0.1:70"\n'
    file = write(tmp_path / "n.toml", f'{shared}[nodes.1]\naddress = "127.0.0.2:70"\n')
    options = ["--transport", "udp", "--period", "0.8", "--slot", "0.2", "--status"]
    with Daemon(folders[0], *options, str(port)) as first, Daemon(folders[1], *options, f"127.0.0.2:{port}") as second:
        for daemon in (first, second):
            daemon.next_event("result", where=lambda event: event["complete"])
        assert main(["status", str(file)]) == 1
        _, *rows = capsys.readouterr().out.splitlines()
        assert rows[0].split()[1:3] != ["another", "agent,"]
        assert f"another agent, of node 0, answers at 127.0.0.1:{port}" in rows[1]
        for status in (f"0.0.0.0:{port}", f"127.0.0.2:{port}"):
            write(file, f'{shared}[nodes.1]\nstatus = "{status}"\naddress = "127.0.0.2:70"\n')
            assert main(["status", "--json", str(file)]) == 0
            assert [json.loads(line)["node"] for line in capsys.readouterr().out.splitlines()] == [0, 1]
        shutil.copy(folders[0] / "status.json", folders[1])
        assert main(["status", str(tmp_path / "nodes")]) == 1
        assert "node-1            another agent, of node 0" in capsys.readouterr().out


def test_a_port_alone_is_open_to_its_own_machine_only(tmp_path, capsys):
    nodes = '[nodes.0]\nstatus = "9107"\naddress = "192.0.2.7:7500"\n[nodes.1]\naddress = "192.0.2.8:7500"\n'
    assert main(["status", str(write(tmp_path / "n.toml", nodes))]) == 1
    _, *rows = capsys.readouterr().out.splitlines()
    assert "node-0 listens for status on its own machine only, 192.0.2.7" in rows[0]
    assert "no status is set for node 1" in rows[1]
