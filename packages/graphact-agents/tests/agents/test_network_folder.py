"""The operator's folder, and deployments that are made from it alone."""

import os
import shutil
import signal
import stat
import subprocess
import sys

import pytest

import graphact
from agents.networks import undirected
from graphact import nn
from graphact_agents import Deployment
from graphact_agents.command import main
from graphact_agents.disk import lock
from graphact_agents.network import NetworkFile
from graphact_agents.network_folder import current_deployment, deploy_network, init_network

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


@pytest.fixture
def network(tmp_path):
    """An operator's folder of a ring of four."""
    graphact.save(nn.GCNN([1, 2], order=1, activation="max-ga").double(), tmp_path / "model.safetensors")
    undirected(RING, 4).save(tmp_path / "graph.npz")
    init_network(tmp_path / "model.safetensors", tmp_path / "graph.npz", tmp_path / "network")
    return tmp_path / "network"


def edit(network, old, new):
    """Replace text of the file of a network."""
    text = (network / "network.toml").read_text()
    assert old in text
    (network / "network.toml").write_text(text.replace(old, new, 1))


def read(out):
    """The deployments of all folders, and each file's content."""
    nodes = {int(folder.name[5:]): Deployment.load(folder) for folder in out.iterdir()}
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    return nodes, files


def test_init_makes_a_folder_that_deploys_as_it_is(network, tmp_path):
    file = NetworkFile.load(network / "network.toml")
    assert {str(each) for each in file.addresses.values()} == {f"127.0.0.1:{7500 + i}" for i in range(4)}
    assert str(file.status_address(2)) == "127.0.0.1:8502"
    nodes, _ = read(deploy_network(network, tmp_path / "nodes").folders[0].parent)
    assert {i: node.links.hears for i, node in nodes.items()} == {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (0, 2)}
    assert nodes[0].settings == file.settings(0) | {
        "transport": "udp", "tls": False, "slot": 0.18, "origin": 0.0, "dynamic": False
    }  # fmt: skip
    assert str(nodes[1].reached.neighbors[2]) == "127.0.0.1:7502"


def test_addresses_of_a_pattern(network, tmp_path):
    pattern = "sensor-{node}.local:7500"
    init_network(network / "model.safetensors", network / "graph.npz", tmp_path / "far", pattern)
    file = NetworkFile.load(tmp_path / "far" / "network.toml")
    assert str(file.addresses[3]) == "sensor-3.local:7500"
    assert file.transport == "zenoh"
    assert "# status" in (tmp_path / "far" / "network.toml").read_text()


def test_all_that_is_written_is_for_its_owner_alone(network, tmp_path):
    edit(network, "# transport", 'transport = "zenoh"\n#')
    before = os.umask(0)
    try:
        deploy_network(network, tmp_path / "nodes")
    finally:
        os.umask(before)
    for path in [*network.rglob("*"), *(tmp_path / "nodes").rglob("*"), tmp_path / "nodes", network]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert not any(b"CERTIFICATE" in path.read_bytes() for path in network.iterdir() if path.is_file())
    for folder in (tmp_path / "nodes").iterdir():  # and no key of the authority
        assert sorted(path.name for path in (folder / "tls").iterdir()) == ["ca.pem", "cert.pem", "key.pem"]


def test_every_deployment_has_its_own_number_keys_and_certificates(network, tmp_path):
    edit(network, "# transport", 'transport = "zenoh"\nvalid_days = 30\n#')
    deploy_network(network, tmp_path / "a")
    deploy_network(network, tmp_path / "b")
    (first, files), (second, others) = read(tmp_path / "a"), read(tmp_path / "b")
    assert first[0].links.epoch != second[0].links.epoch
    assert not {*first[0].links.keys.values()} & {*second[0].links.keys.values()}
    assert files["node-0/tls/ca.pem"] != others["node-0/tls/ca.pem"]
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(files["node-0/tls/cert.pem"])
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 31


def test_keys_are_kept_on_request_and_the_number_where_nothing_changed(network, tmp_path):
    with pytest.raises(FileNotFoundError, match="there are no keys to keep before the first deployment"):
        deploy_network(network, tmp_path / "x", keep_keys=True)
    deploy_network(network, tmp_path / "a")
    edit(network, 'address = "127.0.0.1:7501"', 'address = "127.0.0.1:7501"\nsensor = "echo 1"')
    deploy_network(network, tmp_path / "b", keep_keys=True)  # a node alone is concerned
    edit(network, "slot = 0.18", "slot = 0.2")
    deploy_network(network, tmp_path / "c", keep_keys=True)
    edit(network, "slot = 0.2", "slot = 0.18")
    deploy_network(network, tmp_path / "d", keep_keys=True)
    nodes = [read(tmp_path / name)[0] for name in "abcd"]
    assert len({node.links.keys[1] for node in (each[0] for each in nodes)}) == 1
    epochs = [each[0].links.epoch for each in nodes]
    assert epochs[0] == epochs[1]
    assert len({*epochs}) == 3  # that of a and b does not come back
    assert (nodes[0][1].settings.get("sensor"), nodes[1][1].settings["sensor"]) == (None, "echo 1")


def test_with_certificates_every_deployment_has_a_number_of_its_own(network, tmp_path):
    """Their authority is another each time: a node that got a new folder alone would be let in by nobody."""
    edit(network, "# transport", 'transport = "zenoh"\n#')
    deploy_network(network, tmp_path / "a")
    deploy_network(network, tmp_path / "b", keep_keys=True)
    (first, files), (second, others) = read(tmp_path / "a"), read(tmp_path / "b")
    assert first[0].links.keys == second[0].links.keys
    assert files["node-0/tls/ca.pem"] != others["node-0/tls/ca.pem"]
    assert first[0].links.epoch != second[0].links.epoch


@pytest.mark.parametrize("content", ['{"deployment": "00"}', "{}", "flipped"])
def test_damaged_secrets_are_told_in_one_line(network, tmp_path, content, capsys):
    """With one bit of the secret flipped all would look well, and folders that are not delivered have other keys."""
    deploy_network(network, tmp_path / "a")
    path = network / "secrets.json"
    path.write_text(path.read_text().replace('"secret": "', '"secret": "1') if content == "flipped" else content)
    for words in (["status", str(network)], ["deploy", str(network), "--out", str(tmp_path / "b"), "--keep-keys"]):
        assert main(words) == 2
        assert "secrets.json: damaged: its SHA-256 differs" in capsys.readouterr().err
    deploy_network(network, tmp_path / "b")
    assert current_deployment(network) is not None


def test_a_pattern_without_the_number_of_a_node(network, tmp_path, capsys):
    files = [str(network / name) for name in ("model.safetensors", "graph.npz")]
    assert main(["init", *files, "--out", str(tmp_path / "far"), "--address", "sensor.local:7500"]) == 2
    assert "--address must hold {node}" in capsys.readouterr().err


def test_nodes_come_and_go_by_the_file_and_the_graph(network, tmp_path, capsys):
    text = (network / "network.toml").read_text()
    (network / "network.toml").write_text(text[: text.index("[nodes.3]")])
    assert main(["deploy", str(network), "--out", str(tmp_path / "nodes")]) == 0
    assert "no table of network.toml names them: nodes 3" in capsys.readouterr().out
    nodes, _ = read(tmp_path / "nodes")
    assert {i: node.links.neighbors for i, node in nodes.items()} == {0: (1,), 1: (0, 2), 2: (1,)}
    assert not any(3 in node.reached.neighbors for node in nodes.values())
    undirected([*RING, (4, 0)], 5).save(network / "graph.npz")
    (network / "network.toml").write_text(f'{text}[nodes.4]\naddress = "127.0.0.1:7504"\n')
    deploy_network(network, tmp_path / "more")
    assert read(tmp_path / "more")[0][4].links.neighbors == (0,)
    (network / "network.toml").write_text(f'{text}[nodes.5]\naddress = "127.0.0.1:7505"\n')
    assert main(["deploy", str(network), "--out", str(tmp_path / "none")]) == 2
    assert "nodes.5 is not in graph.npz, which has 5 nodes" in capsys.readouterr().err


def kill_while_deploying(network, out, after):
    """Kill ``deploy`` after some of its calls that change the disk."""
    code = f"""
import os, signal, sys
from pathlib import Path
left = {after}
def step(event, args):
    global left
    if event in ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "shutil.rmtree"):
        if event == "open" and not (args[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
from graphact_agents.network_folder import deploy_network
sys.addaudithook(step)
deploy_network(Path({str(network)!r}), Path({str(out)!r}))
"""
    return subprocess.run([sys.executable, "-c", code], check=False).returncode


@pytest.mark.slow
def test_deploy_writes_all_folders_or_none_wherever_it_is_killed(network, tmp_path):
    """F6: and nothing is to be done by hand after it."""
    out, steps = tmp_path / "nodes", 0
    while (code := kill_while_deploying(network, out, steps)) != 0:
        assert code == -signal.SIGKILL
        if out.exists():  # killed between the last two renames
            nodes, _ = read(out)
            assert sorted(nodes) == [0, 1, 2, 3]
            assert all(
                node.links.keys[j] == nodes[j].links.keys[i] for i, node in nodes.items() for j in node.links.keys
            )
            shutil.rmtree(out)
        steps += 3
    assert steps > 20
    names = ["graph.npz", "model.safetensors", "network", "nodes"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert current_deployment(network) == read(out)[0][0].links.deployment


def test_two_cannot_deploy_one_network_at_the_same_time(network, tmp_path, capsys):
    with (network / ".lock").open("w") as held:
        lock(held.fileno(), "not taken")
        assert main(["deploy", str(network), "--out", str(tmp_path / "nodes")]) == 2
    assert "is in use by another deploy" in capsys.readouterr().err
    assert main(["deploy", str(network), "--out", str(tmp_path / "nodes")]) == 0


@pytest.mark.parametrize("name", [".", "network.toml", "model.safetensors", "graph.npz", "secrets.json"])
def test_files_that_others_can_change_are_refused(network, tmp_path, name, capsys):
    """F11: whoever may write there could give the network another model, or read its keys."""
    deploy_network(network, tmp_path / "nodes")
    for mode in (0o666, 0o620, *([0o640] if name == "secrets.json" else [])):
        (network / name).chmod(mode | (0o100 if name == "." else 0))
        assert main(["deploy", str(network), "--out", str(tmp_path / "nodes")]) == 2
        assert "must be " in capsys.readouterr().err
        (network / name).chmod(0o700 if name == "." else 0o600)
    tmp_path.chmod(0o777)
    assert main(["deploy", str(network), "--out", str(tmp_path / "nodes")]) == 2
    assert "must not be writable by everybody" in capsys.readouterr().err
    tmp_path.chmod(0o700)


def test_folders_are_not_written_where_others_could_replace_them(network, tmp_path, capsys):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert main(["deploy", str(network), "--out", str(tmp_path / "open" / "nodes")]) == 2
    assert "open must not be writable by everybody" in capsys.readouterr().err


def test_what_a_killed_deploy_left_is_removed_and_nothing_else(network, tmp_path):
    left, other = tmp_path / ".n*.new-0123", tmp_path / ".notes.new-0123"
    for folder in (left, other):
        folder.mkdir()
    deploy_network(network, tmp_path / "n*")
    assert (left.exists(), other.exists()) == (False, True)


def test_other_files_are_not_overwritten(network, tmp_path, capsys):
    (tmp_path / "file").touch()
    deploy_network(network, tmp_path / "folder")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    _, before = read(tmp_path / "folder")
    for name in ("file", "folder", "link"):
        assert main(["deploy", str(network), "--out", str(tmp_path / name)]) == 2
        assert "is not an empty folder; choose another" in capsys.readouterr().err
    assert read(tmp_path / "folder")[1] == before
    assert main(["deploy", str(network), "--out", str(tmp_path / "empty")]) == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("period = 0.2", "period must be at least 0.54 s, as long as 3 rounds of 0.18 s may take, got 0.2"),
        ("period = 0.6\ndynamic = true", "and a slot before them may take"),
        ("period = 0\ndynamic = true", "dynamic needs a period above 0"),
    ],
)
def test_runs_that_do_not_fit_are_refused(network, tmp_path, settings, reason, capsys):
    edit(network, "[network]", f"[network]\n{settings}")
    assert main(["deploy", str(network), "--out", str(tmp_path / "nodes")]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "nodes").exists()


def test_what_is_not_encrypted_is_told(network, tmp_path, capsys):
    assert main(["deploy", str(network), "--out", str(tmp_path / "nodes")]) == 0
    assert capsys.readouterr().err == ""  # it stays on this machine
    edit(network, 'address = "127.0.0.1:7501"', 'address = "10.0.0.7:7501"')
    edit(network, "# transport", 'transport = "udp"\n#')
    assert main(["deploy", str(network), "--out", str(tmp_path / "again")]) == 0
    assert "nothing is encrypted" in capsys.readouterr().err


def test_keys_are_kept_as_they_were_delivered_although_a_deploy_was_killed(network, tmp_path):
    """The secret of folders that were never there is not that of the network."""
    deploy_network(network, tmp_path / "a")
    keys = read(tmp_path / "a")[0][0].links.keys
    for after in (4, 16, 28):
        assert kill_while_deploying(network, tmp_path / "b", after) == -signal.SIGKILL
        assert not (tmp_path / "b").exists(), "the folders were there already: fewer steps are needed here"
        deploy_network(network, tmp_path / f"c{after}", keep_keys=True)
        assert read(tmp_path / f"c{after}")[0][0].links.keys == keys
