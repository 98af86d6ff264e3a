"""Small imitations of the real data files."""

import io
import tarfile
from datetime import datetime, timedelta

import numpy as np

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
