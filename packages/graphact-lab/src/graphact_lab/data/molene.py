"""Molène: a month of hourly temperatures in Brittany."""

import csv
import io
import math
import re
import tarfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphact.storage import DAMAGES, one_line
from graphact_lab.data.download import MAX_FILE_SIZE, DataError, PathLike

HOURS = 744
FIRST_HOUR = datetime(2014, 1, 1)
STATION_FILE = re.compile(r"RADOMEH_HACKATON_(\d{8})\.txt")
ANGLE = re.compile(r"(\d+)°(\d+)'(\d+)([NSEW])")
EARTH_RADIUS_KM = 6371.0


@dataclass(frozen=True, eq=False)
class Temperatures:
    """Temperatures of stations over time.

    Attributes:
        stations: the numbers of the stations, ascending.
        degrees: ``(N, 2)``, latitude and longitude of the stations; north and east are positive.
        kelvin: ``(744, N)``, the temperature of every hour of January 2014.
    """

    stations: tuple[str, ...]
    degrees: NDArray[np.float64]
    kelvin: NDArray[np.float64]


def read_molene(folder: PathLike) -> Temperatures:
    """Read the stations whose temperature is complete over January 2014 and whose coordinates are known.

    In the published files that leaves 32 of 55 stations. Rows outside the month are dropped, and of rows with the
    same hour all but the first. The archive is read in memory, station files only; nothing is extracted.

    Raises:
        DataError: the files do not hold what they should.
    """
    folder = Path(folder)
    try:
        with (folder / "weather_stations.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        known = {row["Numéro"]: (degrees_of(row["Latitude"]), degrees_of(row["Longitude"])) for row in rows}
        series = read_series(folder / "RADOMEH.tar.gz")
    except (*DAMAGES, OSError, tarfile.TarError, csv.Error) as error:
        raise DataError(f"{folder} does not hold the Molène data: {one_line(error)}") from error
    stations = sorted(number for number, hours in series.items() if number in known and not np.isnan(hours).any())
    if not stations:
        raise DataError(f"{folder} does not hold the Molène data: no station with coordinates is complete")
    degrees = np.array([known[number] for number in stations])
    return Temperatures(tuple(stations), degrees, np.stack([series[number] for number in stations], axis=1))


def degrees_of(angle: str) -> float:
    """Degrees from text such as ``48°51'18N``; south and west are negative.

    Example:
        >>> degrees_of("3°30'00W")
        -3.5
    """
    match = ANGLE.fullmatch(angle.strip())
    if match is None:
        raise ValueError(f"an angle such as 48°51'18N was expected, got {angle!r}")
    degrees, minutes, seconds = (int(part) for part in match.groups()[:3])
    return (-1 if match[4] in "SW" else 1) * (degrees + minutes / 60 + seconds / 3600)


def read_series(path: Path) -> dict[str, NDArray[np.float64]]:
    """Temperature in kelvin of the 744 hours by station number, NaN where it is missing."""
    hours = [(FIRST_HOUR + timedelta(hours=hour)).strftime("%Y%m%d%H%M%S") for hour in range(HOURS)]
    series = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = STATION_FILE.fullmatch(member.name)
            content = archive.extractfile(member) if name and member.isreg() else None
            if name and content:
                if member.size > MAX_FILE_SIZE:
                    raise ValueError(f"{member.name} would take {member.size} bytes")
                rows = list(csv.DictReader(io.TextIOWrapper(content, "latin-1", newline="")))
                first = {row["date"]: row["t"] for row in reversed(rows)}  # of rows with the same hour
                found = (first.get(hour, "mq") for hour in hours)
                series[name[1]] = np.array([kelvin_of(text) for text in found])
    return series


def kelvin_of(text: str) -> float:
    """A temperature; NaN for ``mq``, which marks a missing one.

    Example:
        >>> kelvin_of("283.15"), kelvin_of("mq")
        (283.15, nan)
    """
    kelvin = math.nan if text == "mq" else float(text)
    if text != "mq" and not 0 < kelvin < 1000:
        raise ValueError(f"a temperature in kelvin or mq was expected, got {text!r}")
    return kelvin


def kilometres_of(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """East and north in kilometres from the middle of the points, on the plane that touches the Earth there.

    Over the 250 km of Brittany the error of this (equirectangular) projection is about one percent at most.
    """
    latitude, longitude = np.radians(degrees).T
    east = (longitude - longitude.mean()) * np.cos(latitude.mean())
    return EARTH_RADIUS_KM * np.stack([east, latitude - latitude.mean()], axis=1)
