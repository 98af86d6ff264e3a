import pytest
from tasks.web import COORDINATES, zip_of

from graphact.tasks import DataError, show_progress
from graphact.tasks.download import LARGEST_FILE, download, member_of_zip


def test_an_endless_file_is_cut_off(server, monkeypatch):
    monkeypatch.setattr("graphact.tasks.download.LARGEST_FILE", 1000)
    with pytest.raises(DataError, match="more than 1000 bytes came"):
        download(f"{server.url}/RADOMEH.tar.gz")


def test_a_zip_bomb_is_not_unpacked():
    archive = zip_of({"big": bytes(LARGEST_FILE + 1)})
    assert len(archive) < 1e6
    with pytest.raises(DataError, match=f"big would take {LARGEST_FILE + 1} bytes"):
        member_of_zip(archive, "big", "there")


def test_progress_without_a_known_length(server, empty_cache):
    calls = []
    server.promised["/weather_stations.csv"] = None
    download(f"{server.url}/weather_stations.csv", lambda *call: calls.append(call))
    assert calls[-1][1:] == (len(COORDINATES), None)


def test_the_progress_line(capsys):
    show_progress("http://example.org/ml-100k.zip", 2_500_000, 5_000_000)
    show_progress("http://example.org/ml-100k.zip", 5_000_000, 5_000_000)
    show_progress("http://example.org/other", 1_000_000, None)
    expected = "\rdownloading ml-100k.zip:  50 % of 5.0 MB\rdownloading ml-100k.zip: 100 % of 5.0 MB\n"
    assert capsys.readouterr().err == expected + "\rdownloading other: 1.0 MB"
