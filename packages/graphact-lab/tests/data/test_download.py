import os
import socket
import threading
from pathlib import Path

import pytest

from graphact_lab.data.download import (
    MAX_FILE_SIZE,
    DataError,
    check,
    data_directory,
    download,
    fetch,
    locate,
    member_of_zip,
)
from support.web import ARCHIVE, COORDINATES, RATINGS, TITLES, publish, zip_of


def files_under(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_zip_is_downloaded_once_and_only_named_members_are_kept(server, empty_cache):
    folder = locate("ml-100k")
    assert folder == locate("ml-100k") == empty_cache / "ml-100k"
    assert (folder / "u.data").read_bytes() == RATINGS
    assert (folder / "u.item").read_bytes() == TITLES
    assert files_under(empty_cache.parent.parent) == ["cache/graphact/ml-100k/u.data", "cache/graphact/ml-100k/u.item"]
    assert server.asked == ["/ml-100k.zip"]


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"damaged")])
def test_only_what_is_missing_or_damaged_is_downloaded(server, empty_cache, spoil):
    fetch("molene")
    archive, stations = (empty_cache / "molene" / name for name in ("RADOMEH.tar.gz", "weather_stations.csv"))
    spoil(stations)
    before = archive.stat()
    locate("molene")
    assert stations.read_bytes() == COORDINATES
    assert (before.st_ino, before.st_mtime_ns) == (archive.stat().st_ino, archive.stat().st_mtime_ns)
    assert server.asked == ["/RADOMEH.tar.gz", "/weather_stations.csv", "/weather_stations.csv"]


def test_fetch_fills_the_directory_it_is_given(server, empty_cache, tmp_path):
    assert fetch("molene", tmp_path / "here") == tmp_path / "here/molene"
    assert files_under(tmp_path / "here") == ["molene/RADOMEH.tar.gz", "molene/weather_stations.csv"]
    assert locate("molene", tmp_path / "here", download=False) == tmp_path / "here/molene"
    assert not empty_cache.exists()


def fails(message, *arguments, act=fetch, **options):
    """Expect one line that holds ``message`` and says what to do."""
    with pytest.raises(DataError, match=message) as caught:
        act(*arguments, **options)
    line = str(caught.value)
    assert "\n" not in line
    assert "set GRAPHACT_DATA or --data to a folder that holds" in line
    return line


def cut_off(server, promise=True):
    """Send half of each page, which promises the whole or says nothing."""
    for page, content in list(server.pages.items()):
        server.promised[page] = len(content) if promise else None
        server.pages[page] = content[: len(content) // 2]


OTHER_NAMES = zip_of({"/ml-100k/u.data": RATINGS, "../ml-100k/u.data": RATINGS})


@pytest.mark.parametrize(
    ("dataset", "spoil", "message"),
    [
        ("ml-100k", cut_off, r"the connection ended after \d+ of \d+ bytes"),
        ("molene", cut_off, r"the connection ended after \d+ of \d+ bytes"),
        ("ml-100k", lambda server: cut_off(server, promise=False), "ml-100k.zip: the archive is damaged"),
        (
            "ml-100k",
            lambda server: server.pages.update({"/ml-100k.zip": OTHER_NAMES}),
            "has no file named ml-100k/u.da",
        ),
        ("ml-100k", lambda server: server.pages.clear(), "the server answered 404 Not Found"),
    ],
)
def test_a_download_that_fails_leaves_nothing(server, empty_cache, dataset, spoil, message):
    spoil(server)
    fails(message, dataset)
    assert files_under(empty_cache.parent.parent) == []


def test_content_with_another_hash_is_not_kept(server, empty_cache):
    server.pages["/weather_stations.csv"] = b"something else"
    line = fails("the hash of molene/weather_stations.csv is not the expected one", "molene")
    assert "molene/RADOMEH.tar.gz and molene/weather_stations.csv" in line
    assert files_under(empty_cache) == ["molene/RADOMEH.tar.gz"]


def test_a_bad_download_does_not_replace_a_file(server, empty_cache):
    fetch("ml-100k")
    (empty_cache / "ml-100k/u.item").write_bytes(b"edited by hand")
    server.pages["/ml-100k.zip"] = zip_of({"ml-100k/u.data": b"bad", "ml-100k/u.item": b"bad"})
    fails("the hash of ml-100k/u.item", "ml-100k")
    assert (empty_cache / "ml-100k/u.data").read_bytes() == RATINGS
    assert (empty_cache / "ml-100k/u.item").read_bytes() == b"edited by hand"


def test_no_network(empty_cache, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.setenv("no_proxy", "*")
    publish(monkeypatch, f"http://127.0.0.1:{port}")
    fails(f"cannot download http://127.0.0.1:{port}/ml-100k.zip: .*refused", "ml-100k", act=locate)


def test_an_address_that_does_not_speak_http(empty_cache, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            with listener.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"who is there?\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        publish(monkeypatch, f"http://127.0.0.1:{listener.getsockname()[1]}")
        fails("cannot download", "ml-100k")
        thread.join()


def test_a_folder_that_cannot_be_written(server, empty_cache):
    empty_cache.parent.mkdir()
    empty_cache.write_text("a file where the folder should be")
    fails("cannot write", "molene")
    assert empty_cache.read_text() == "a file where the folder should be"


def test_a_line_on_a_terminal_says_what_is_on_its_way(server, empty_cache, monkeypatch, capsys):
    fetch("ml-100k")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    fetch("molene")
    expected = "".join(f"downloading {server.url}/{page}\n" for page in ("RADOMEH.tar.gz", "weather_stations.csv"))
    assert capsys.readouterr().err == expected


def test_an_endless_file_is_cut_off(server, monkeypatch):
    monkeypatch.setattr("graphact_lab.data.download.MAX_FILE_SIZE", 1000)
    with pytest.raises(DataError, match="more than 1000 bytes came"):
        download(f"{server.url}/RADOMEH.tar.gz")


def test_a_zip_bomb_is_not_unpacked():
    archive = zip_of({"big": bytes(MAX_FILE_SIZE + 1)})
    assert len(archive) < 1e6
    with pytest.raises(DataError, match=f"big would take {MAX_FILE_SIZE + 1} bytes"):
        member_of_zip(archive, "big", "there")


def test_a_named_directory_is_only_read(server, empty_cache, tmp_path, monkeypatch):
    fails("u.data is missing", "ml-100k", tmp_path / "mine", act=locate)
    monkeypatch.setenv("GRAPHACT_DATA", str(tmp_path / "mine"))
    fails("u.data is missing", "ml-100k", act=locate)
    assert not (tmp_path / "mine").exists()
    monkeypatch.delenv("GRAPHACT_DATA")
    fails("u.data is missing", "ml-100k", act=locate, download=False)
    assert server.asked == []


def test_a_damaged_file_in_a_named_directory(server, tmp_path):
    fetch("molene", tmp_path)
    (tmp_path / "molene/RADOMEH.tar.gz").write_bytes(ARCHIVE[:-1])
    fails("RADOMEH.tar.gz is damaged", "molene", tmp_path, act=locate)


def test_the_order_of_places(empty_cache, monkeypatch, tmp_path):
    assert data_directory() == empty_cache
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_directory() == tmp_path / ".cache/graphact"
    monkeypatch.setenv("GRAPHACT_DATA", "~/data")
    assert data_directory() == tmp_path / "data"
    assert data_directory("elsewhere") == Path("elsewhere")
    monkeypatch.setenv("GRAPHACT_DATA", "")
    assert data_directory() == tmp_path / ".cache/graphact"


def test_check_tells_the_state_of_every_file(server, empty_cache, tmp_path):
    fetch("molene", tmp_path)
    (tmp_path / "molene/weather_stations.csv").write_bytes(b"")
    assert check(tmp_path) == [
        ("ml-100k", "ml-100k/u.data", "missing"),
        ("ml-100k", "ml-100k/u.item", "missing"),
        ("molene", "molene/RADOMEH.tar.gz", "ok"),
        ("molene", "molene/weather_stations.csv", "damaged"),
        ("planetoid", "planetoid/ind.cora.graph", "missing"),
        ("heterophily", "heterophily/wisconsin.npz", "missing"),
        ("attributed", "attributed/Flickr.mat", "missing"),
        ("tu", "tu/NCI1_splits.json", "missing"),
    ]


def test_a_file_that_cannot_be_read(server, tmp_path):
    (tmp_path / "molene/RADOMEH.tar.gz").mkdir(parents=True)
    with pytest.raises(DataError, match="cannot read .*RADOMEH.tar.gz: Is a directory"):
        check(tmp_path)


def test_unknown_datasets_are_named():
    known = "'ml-100k', 'molene', 'planetoid', 'heterophily', 'attributed', 'tu'"
    with pytest.raises(ValueError, match=f"dataset must be one of {known}, got 'cora'"):
        locate("cora")


def test_a_data_set_of_many_files_is_asked_for_in_a_short_line(tmp_path):
    line = fails("ind.cora.allx is missing", "planetoid", tmp_path, act=locate)
    assert line.endswith("a folder that holds planetoid/ind.cora.allx and planetoid/ind.cora.ally and 22 more")


def test_the_real_files(real_data):
    assert {status for _, _, status in check(real_data)} == {"ok"}
    assert locate("molene") == Path(os.environ["GRAPHACT_DATA"]) / "molene"
