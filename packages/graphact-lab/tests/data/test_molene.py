import tarfile
from functools import partial

import numpy as np
import pytest

from graphact_lab.data.download import DataError
from graphact_lab.data.molene import degrees_of, kilometres_of, read_molene
from support.imitation import COORDINATES, STATIONS, station_file, station_lines, station_row, temperature, write_molene

KEPT, OTHER = STATIONS[:2]


def test_hours_and_stations_in_order(molene_folder):
    read = read_molene(molene_folder)
    assert read.stations == tuple(STATIONS)
    assert read_molene(str(molene_folder)).stations == read.stations
    assert read.kelvin.shape == (744, 14)
    for hour, station in [(0, 0), (743, 0), (100, 13)]:
        assert read.kelvin[hour, station] == temperature(STATIONS[station], hour)
    np.testing.assert_allclose(read.degrees[3], [48.5, -(4 + 3.5 / 60)])


def read_with(tmp_path, lines, **changes):
    files = {station_file(KEPT): station_lines(KEPT), station_file(OTHER): lines}
    return read_molene(write_molene(tmp_path / "molene", files, **changes))


OUTSIDE = [station_row(OTHER, hour, kelvin=999) for hour in (-1, 744, 800)]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[::-1],
        lambda rows: [*OUTSIDE, *rows],  # of other months
        lambda rows: [*rows, station_row(OTHER, 7, kelvin=999)],  # of repeated hours the first counts
    ],
)
def test_the_first_row_of_each_hour_of_the_month_counts(tmp_path, change):
    header, *rows, end = station_lines(OTHER)
    read = read_with(tmp_path, [header, *change(rows), end])
    assert read.stations == (KEPT, OTHER)
    assert read.kelvin[:, 1].tolist() == [temperature(OTHER, hour) for hour in range(744)]


@pytest.mark.parametrize("spoil", ["missing value", "missing row"])
def test_an_incomplete_station_is_left_out(tmp_path, spoil):
    lines = station_lines(OTHER)
    if spoil == "missing row":
        del lines[400]
    else:
        lines[400] = station_row(OTHER, 399, kelvin="mq")
    assert read_with(tmp_path, lines).stations == (KEPT,)


def test_a_station_without_coordinates_is_left_out(tmp_path):
    known = {KEPT: COORDINATES[KEPT]}
    assert read_with(tmp_path, station_lines(OTHER), coordinates=known).stations == (KEPT,)


@pytest.mark.parametrize(
    "name",
    ["readme_radomeh.txt", f"../{station_file(OTHER)}", f"/tmp/{station_file(OTHER)}", f"a/{station_file(OTHER)}"],
)
def test_other_names_in_the_archive_are_harmless(tmp_path, name):
    files = {station_file(KEPT): station_lines(KEPT), name: station_lines(OTHER)}
    folder = write_molene(tmp_path / "molene", files)
    before = sorted(tmp_path.rglob("*"))
    assert read_molene(folder).stations == (KEPT,)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_in_the_archive_is_not_followed(tmp_path):
    folder = write_molene(tmp_path / "molene", {station_file(KEPT): station_lines(KEPT)})
    secret = tmp_path / "secret"
    secret.write_text("\n".join(station_lines(OTHER)))
    with tarfile.open(folder / "RADOMEH.tar.gz", "w:gz") as archive:
        for station, target in [(OTHER, str(secret)), (STATIONS[2], station_file(KEPT))]:
            link = tarfile.TarInfo(station_file(station))
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        archive.add(write_lines(tmp_path / "kept", station_lines(KEPT)), station_file(KEPT))
    assert read_molene(folder).stations == (KEPT,)


def write_lines(path, lines):
    path.write_text("\n".join(lines))
    return path


def write_temperature(folder, text):
    lines = station_lines(OTHER)
    lines[7] = station_row(OTHER, 6, text)
    write_molene(folder, {station_file(KEPT): station_lines(KEPT), station_file(OTHER): lines})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "RADOMEH.tar.gz").write_bytes(b"no archive"),
        lambda folder: (folder / "RADOMEH.tar.gz").write_bytes((folder / "RADOMEH.tar.gz").read_bytes()[:2000]),
        lambda folder: (folder / "RADOMEH.tar.gz").unlink(),
        lambda folder: (folder / "weather_stations.csv").write_text("a,b\n1,2\n"),
        lambda folder: write_molene(folder, {}),
        lambda folder: write_molene(folder, coordinates={KEPT: ("north", "west")}),
        lambda folder: write_molene(folder, {station_file(KEPT): ["numer_sta,date", f"{KEPT},20140101000000"]}),
        *(partial(write_temperature, text=text) for text in ("1e999", "nan", "-5", "")),
    ],
)
def test_damaged_files_are_told_in_one_line(molene_folder, spoil):
    spoil(molene_folder)
    with pytest.raises(DataError, match="does not hold the Molène data") as caught:
        read_molene(molene_folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "degrees"), [("48°30'36N", 48.51), ("3°00'00W", -3), ("1°00'36S", -1.01), ("2°15'00E", 2.25)]
)
def test_degrees(text, degrees):
    assert degrees_of(text) == pytest.approx(degrees)


def test_kilometres_agree_with_the_great_circle():
    degrees = np.array([[48.86, -3.0], [47.0, -2.26], [48.47, -5.06], [48.1, -3.7]])
    plane = kilometres_of(degrees)
    (lat_a, lon_a), (lat_b, lon_b) = np.radians(degrees)[:, None].T, np.radians(degrees)[None].T
    haversine = np.sin((lat_a - lat_b) / 2) ** 2 + np.cos(lat_a) * np.cos(lat_b) * np.sin((lon_a - lon_b) / 2) ** 2
    great_circle = 2 * 6371 * np.arcsin(np.sqrt(haversine))
    flat = np.linalg.norm(plane[:, None] - plane, axis=-1)
    np.testing.assert_allclose(flat, great_circle, rtol=0.012)


def test_the_real_stations(real_data):
    read = read_molene(real_data / "molene")
    assert read.kelvin.shape == (744, 32)
    assert len(set(read.stations)) == 32
    assert not {"29151004", "29214001", "29293001", "44168001", "56081003"} & set(read.stations)
    assert 260 < read.kelvin.min() < read.kelvin.max() < 295
    assert read.degrees.min(axis=0) == pytest.approx([47, -5.06], abs=0.5)
