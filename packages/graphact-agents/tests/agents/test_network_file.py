"""The file that an operator edits: settings, and what is wrong told in one line."""

import os

import pytest

from graphact_agents.addresses import Address
from graphact_agents.command import main, make_parser
from graphact_agents.command_run import apply_settings
from graphact_agents.deployment import Deployment
from graphact_agents.network import DEFAULTS, SETTINGS, NetworkFile

NODES = '[nodes.0]\naddress = "127.0.0.1:70"\n[nodes.1]\naddress = "127.0.0.1:71"\n'


def write(path, text):
    path.write_text(text)
    return path


def load(tmp_path, text):
    return NetworkFile.load(write(tmp_path / "network.toml", text))


def test_settings_of_a_node_go_before_those_of_the_network(tmp_path):
    file = load(tmp_path, "[network]\nslot = 1\nrepeat = true\nlead = 2\n" + NODES.replace("70", "80") + "lead = 0.5\n")
    agreed = {"slot": 1.0, "transport": "udp", "tls": False}
    assert file.settings(0) == {"repeat": True, "lead": 2.0, **agreed}
    assert file.settings(1) == {"repeat": True, "lead": 0.5, **agreed}
    assert file.addresses == {0: Address("127.0.0.1", 80), 1: Address("127.0.0.1", 71)}


def test_one_source_of_signals_the_nearest_to_the_node(tmp_path):
    file = load(tmp_path, f'[network]\nsensor = "echo 1"\n{NODES}signals = "mine.npy"\n')
    assert file.settings(0)["sensor"] == "echo 1"
    assert "sensor" not in file.settings(1)
    assert file.settings(1)["signals"] == "mine.npy"


@pytest.mark.parametrize(
    ("network", "host", "transport", "tls"),
    [
        ("", "127.0.0.1", "udp", False),
        ("", "10.0.0.7", "zenoh", True),
        ('transport = "udp"', "10.0.0.7", "udp", False),
        ('transport = "zenoh"', "127.0.0.1", "zenoh", True),
        ('transport = "zenoh"\ntls = false', "10.0.0.7", "zenoh", False),
        ("", "[::1]", "udp", False),
        ("", "localhost", "udp", False),
        ("", "127.8.9.1", "udp", False),
        ("", "127.evil.example", "zenoh", True),
    ],
)
def test_what_leaves_a_machine_is_encrypted_unless_the_file_says_otherwise(tmp_path, network, host, transport, tls):
    file = load(tmp_path, f'[network]\n{network}\n{NODES}[nodes.2]\naddress = "{host}:75"\n')
    assert (file.transport, file.tls) == (transport, tls)


HOSTILE = {
    b"": "at least one node must be there",
    b"[network": "not valid TOML",
    b"[network]\n": "at least one node must be there",
    b"\xff\xfe[network]": "not valid TOML",
    b"\x00": "not valid TOML",
    b'[nodes.0]\naddress = "a:1"\n[nodes.0]\naddress = "b:1"\n': "not valid TOML",
    b"x = " + b"[" * 100_000: "not valid TOML",
    b"x = " + b"9" * 5000: "not valid TOML",
    b"#" * (2**24 + 1): "it has more than 16777216 bytes",
    b"[other]\n": "'other' is not a setting; there are network, nodes",
    b'"\\u001b]0;owned\\u0007" = 1\n': "is not a setting",
    b"network = 1\n": "'network' must be a table, got 1",
    b"nodes = []\n": "'nodes' must be a table, got []",
    b"[[nodes]]\n": "'nodes' must be a table",
    b"[nodes]\n0 = 1\n": "nodes.0 must be a table, got 1",
    b"[nodes.x]\n": "nodes must be tables by number",
    b"[nodes.01]\n": "nodes must be tables by number",
    b"[nodes.-1]\n": "nodes must be tables by number",
    b'[nodes."1.0"]\n': "nodes must be tables by number",
    b'[nodes.""]\n': "nodes must be tables by number",
    '[nodes."\u0661"]\n'.encode(): "nodes must be tables by number",
    '[nodes."\u00b2"]\n'.encode(): "nodes must be tables by number",
    b"[nodes.99999999999999999999]\n": "nodes must be tables by number",
    b"[nodes.4294967296]\n": "nodes must have numbers below 2^32",
    b'[nodes."\\u001b[31m"]\n': "nodes must be tables by number",
    b"[nodes.0]\n": "nodes.0 must have an address",
    b'[nodes.0]\naddress = "here"\n': "an address must be host:port",
    b'[nodes.0]\naddress = "a b:1"\n': "an address must be host:port",
    b'[nodes.0]\naddress = "a\\u001b:1"\n': "address must be printable text",
    b'[nodes.0]\naddress = "a:0"\n': "address must be where others reach the node",
    b'[nodes.0]\naddress = "0.0.0.0:1"\n': "address must be where others reach the node",
    b'[nodes.0]\naddress = "0:1"\n': "address must be where others reach the node",
    b'[nodes.0]\naddress = "*:1"\n': "address must be where others reach the node",
    b'[nodes.0]\naddress = "a..b:1"\n': "address must be where others reach the node",
    b'[nodes.0]\naddress = "224.0.0.1:1"\n': "address must be where others reach the node",
    b'[nodes.0]\naddress = "255.255.255.255:1"\n': "address must be where others reach the node",
    '[nodes.0]\naddress = "a:\u0667"\n'.encode(): "an address must be host:port",
    b"[nodes.0]\naddress = 7500\n": "nodes.0.address must be text, got 7500",
    b'[nodes.0]\naddress = "a:1"\n[nodes.1]\naddress = "a:1"\n': "nodes.0 and nodes.1 have the same address",
    b'[nodes.0]\naddress = "Host:1"\n[nodes.1]\naddress = "host.:1"\n': "nodes.0 and nodes.1 have the same address",
    b'[nodes.0]\naddress = "localhost:1"\n[nodes.1]\naddress = "127.0.0.1:1"\n': "have the same address",
    b'[nodes.0]\naddress = "[fe80::7]:1"\n[nodes.1]\naddress = "[FE80:0::0:7]:1"\n': "have the same address",
    b'[nodes.0]\naddress = "a:1%s"\n' % (b"0" * 5000): "an address must be host:port",
    b'[nodes.0]\naddress = "a:1"\nslot = 1.0\n': "nodes.0.slot is not a setting of the whole network",
}
"""Whole files, and what is told of them."""
SETTING = {
    b"slott = 1": "network.slott is not a setting",
    b'slot = "1"': "network.slot must be a number, got '1'",
    b"slot = nan": "slot must lie between",
    b"slot = 0": "slot must lie between",
    b"slot = 1" + b"0" * 400: "network.slot must be a number",
    b"period = -1": "period must lie between 0",
    b"period = inf": "period must lie between 0",
    b"origin = 2026-01-01": "network.origin must be a number",
    b"repeat = 1": "network.repeat must be true or false, got 1",
    b'transport = "zeno"': "did you mean 'zenoh'?",
    b'sensor = ""': "sensor must be printable text",
    b'sensor = "echo \'"': "sensor must be a command",
    b'sensor = "a\\u0000b"': "sensor must be printable text",
    b'sensor = "a"\nsignals = "b"': "signals and sensor exclude each other",
    b'status = "x"': "an address must be host:port",
    'status = "\u0667"'.encode(): "an address must be host:port",
    b"tls = true": 'tls = true needs transport = "zenoh", got udp',
    b"valid_days = 0": "network.valid_days must lie between 1 and 36500",
    b"valid_days = 1" + b"0" * 4000: "network.valid_days must lie between 1 and 36500",
}
"""Lines of a file that is otherwise right."""
FILES = HOSTILE | {b"[network]\n" + line + b"\n" + NODES.encode(): told for line, told in SETTING.items()}


@pytest.mark.parametrize("content", FILES, ids=range(len(FILES)))
@pytest.mark.parametrize("command", ["deploy", "status"])
def test_hostile_files_are_told_in_one_line(tmp_path, content, command, capsys):
    """F12: of the operator's file, in the commands that read it; nothing that a terminal would obey is printed."""
    for name in ("model.safetensors", "graph.npz"):
        (tmp_path / name).write_bytes(b"not read before the file is")
    (tmp_path / "network.toml").write_bytes(content)
    assert main([command, str(tmp_path), *(["--out", str(tmp_path / "n")] if command == "deploy" else [])]) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert FILES[content] in line
    assert "network.toml" in line
    assert line.isprintable()
    assert told.out == ""
    assert not (tmp_path / "n").exists()


def test_what_is_no_file(tmp_path, capsys):
    (tmp_path / "network.toml").mkdir()
    assert main(["deploy", str(tmp_path), "--out", str(tmp_path / "n")]) == 2
    os.mkfifo(tmp_path / "fifo")
    assert main(["deploy", str(tmp_path / "fifo"), "--out", str(tmp_path / "n")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_all_settings_are_options():
    values = {"transport": "=udp", "sensor": "=1", "signals": "=1"}
    for other in ("sensor", "signals"):  # which exclude each other
        names = [name for name in SETTINGS if name != other]
        words = [f"--{name}" + ("" if SETTINGS[name] is bool else values.get(name, "=1")) for name in names]
        options = make_parser().parse_args(["run", "x", *words])
        assert all(getattr(options, name) not in (None, False) for name in names)


def options_of(settings, *words):
    options = make_parser().parse_args(["run", "nodes/node-0", *words])
    apply_settings(options, Deployment(None, None, None, None, settings))
    return vars(options)


def test_the_command_line_goes_before_the_folder():
    """Also where it says what holds without it."""
    settings = {"transport": "zenoh", "period": 7.0, "slot": 0.5, "origin": 3.0, "lead": 2.0, "sensor": "echo [9]"}
    flags = ["tls", "repeat", "dynamic", "durable"]
    settings |= dict.fromkeys(flags, True)
    values = ["--transport=udp", "--period=0", "--slot=0.18", "--origin=0", "--lead=0.5", "--signals=-"]
    told = options_of(settings, *values, *(f"--no-{name}" for name in flags))
    assert {name: told[name] for name in DEFAULTS} == DEFAULTS
    assert (told["period"], told["sensor"]) == (0.0, None)
    assert {name: options_of(settings)[name] for name in settings} == settings
    assert options_of(settings, "--sensor", "echo 2")["signals"] == "-"
    assert options_of(settings, "--transport", "udp")["tls"] is False
    unset = options_of({})
    assert {name: unset[name] for name in DEFAULTS} == DEFAULTS
    assert unset["period"] is None


@pytest.mark.parametrize("settings", [{"slot": "x"}, {"slots": 1}, {"slot": -1.0}, {"sensor": "\x1b"}, {"status": "x"}])
def test_damaged_settings_of_a_folder(settings):
    with pytest.raises(ValueError, match=r"slot|sensor|an address"):
        options_of(settings)


def test_a_port_alone_is_open_to_its_own_machine_only(tmp_path, capsys):
    nodes = '[nodes.0]\nstatus = "9107"\naddress = "192.0.2.7:7500"\n[nodes.1]\naddress = "192.0.2.8:7500"\n'
    nodes += '[nodes.2]\nstatus = "0"\naddress = "127.0.0.1:7500"\n'
    write(tmp_path / "network.toml", nodes)
    assert main(["status", str(tmp_path)]) == 1
    _, *rows = capsys.readouterr().out.splitlines()
    assert "node-0 listens for status on its own machine only, 192.0.2.7" in rows[0]
    assert "no status is set for node 1" in rows[1]
    assert "node-2 takes any port for its status" in rows[2]


STATUS = {
    ("127.0.0.1", "127.0.0.2"): '"9107"',
    ("10.0.0.7", "10.0.0.7"): '"0.0.0.0:9107"',
    ("a", "A"): '"0.0.0.0:9107"',
}


@pytest.mark.parametrize("hosts", STATUS)
def test_two_nodes_of_a_machine_have_two_ports_for_their_status(tmp_path, hosts):
    nodes = [f'[nodes.{i}]\naddress = "{host}:{7500 + i}"\n' for i, host in enumerate(hosts)]
    with pytest.raises(ValueError, match=r"nodes.0 and nodes.1 have the same status"):
        load(tmp_path, f"[network]\nstatus = {STATUS[hosts]}\n{''.join(nodes)}")
    assert load(tmp_path, f'[network]\nstatus = "0"\n{"".join(nodes)}')
    far = nodes[1].replace(hosts[1], "b")
    assert load(tmp_path, f"[network]\nstatus = {STATUS[hosts]}\n{nodes[0]}{far}")
