"""Small imitations of the real data files."""

import io
import pickle
import struct
import tarfile
from collections import defaultdict
from datetime import datetime, timedelta
from typing import ClassVar

import numpy as np
import scipy.sparse

STATIONS = [f"290{number:05d}" for number in range(14)]
COORDINATES = {station: ("48°30'00N", f"4°{minutes:02d}'30W") for minutes, station in enumerate(STATIONS)}
HEADER = "numer_sta,date,date_insert,td,t,u"


def temperature(station, hour):
    """A made-up temperature in kelvin."""
    return round(280 + 5 * np.sin(hour / 24 * 2 * np.pi) + STATIONS.index(station) / 10, 6)


def station_row(station, hour, kelvin=None):
    """The line of one hour, counted from the start of January 2014."""
    date = (datetime(2014, 1, 1) + timedelta(hours=hour)).strftime("%Y%m%d%H%M%S")
    return f"{station},{date},{date},270.0,{temperature(station, hour) if kelvin is None else kelvin},80"


def station_lines(station):
    """A complete station file."""
    return [HEADER, *(station_row(station, hour) for hour in range(744)), "EOF"]


def station_file(station):
    """The name of a station's file in the archive."""
    return f"RADOMEH_HACKATON_{station}.txt"


def write_molene(folder, files=None, coordinates=COORDINATES):
    """Write the two files of Molène; ``files`` maps names in the archive to lines."""
    files = {station_file(s): station_lines(s) for s in STATIONS} if files is None else files
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "RADOMEH.tar.gz", "w:gz") as archive:
        for name, lines in files.items():
            content = "\n".join(lines).encode("latin-1")
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    rows = [f"{station},SOMEWHERE,{north},{west},0,0,10 " for station, (north, west) in coordinates.items()]
    text = "\n".join(["Numéro,Nom,Latitude,Longitude,Lambert II X, Lambert II Y,Altitude", *rows])
    (folder / "weather_stations.csv").write_text(text, encoding="utf-8")
    return folder


def write_movielens(folder, matrix, titles):
    """Write the two files of MovieLens that are read."""
    folder.mkdir(parents=True, exist_ok=True)
    users, items = np.nonzero(matrix)
    lines = [f"{u + 1}\t{i + 1}\t{int(matrix[u, i])}\t880000000" for u, i in zip(users, items, strict=True)]
    (folder / "u.data").write_text("\n".join(lines) + "\n")
    rows = [f"{item}|{title}|01-Jan-1995||http://example.org|0|1" for item, title in enumerate(titles, start=1)]
    (folder / "u.item").write_bytes(("\n".join(rows) + "\n").encode("latin-1"))
    return folder


TRAIN, OTHERS = 6, 520  # documents with a public label, and those that are not for testing
TEST_INDEX = [523, 520, 522]  # 521 is left out, as in CiteSeer


class Python2Pickler(pickle._Pickler):
    """Bytes are strings, as they were in Python 2."""

    def save_string(self, value):
        self.write(b"T" + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch: ClassVar = {**pickle._Pickler.dispatch, bytes: save_string}


def as_python_2_wrote(value):
    """The pickle of a value whose modules have the names of that time."""
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    content = stream.getvalue()
    for now, then in (("numpy._core.multiarray", "numpy.core.multiarray"), ("scipy.sparse._csr", "scipy.sparse.csr")):
        content = content.replace(f"c{now}\n".encode(), f"c{then}\n".encode())
    return content


def write_planetoid(folder):
    """Write the files of a citation graph of 524 documents, as Cora's are; return features and labels."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    allx = (rng.random((OTHERS, 8)) < 0.3).astype(np.float32)
    allx[3] = 0
    tx = np.full((3, 8), 1, np.float32) * [[1], [2], [3]]
    ally, ty = np.eye(3, dtype=np.int32)[rng.integers(3, size=OTHERS)], np.eye(3, dtype=np.int32)
    graph = defaultdict(list, {node: [] for node in range(524)})
    for one, other in [(0, 1), (1, 2), (1, 2), (4, 4), (519, 523)]:
        graph[one].append(other)
        graph[other].append(one)
    parts = {"allx": scipy.sparse.csr_matrix(allx), "ally": ally, "tx": scipy.sparse.csr_matrix(tx.astype(np.float32))}
    for part, value in {**parts, "ty": ty, "y": ally[:TRAIN], "graph": graph}.items():
        (folder / f"ind.cora.{part}").write_bytes(as_python_2_wrote(value))
    (folder / "ind.cora.test.index").write_text("".join(f"{index}\n" for index in TEST_INDEX))
    return allx, ally
