"""Write readings.csv and places.csv of six sensors, for those who have none yet; or those of 32 weather stations.

python examples/sensors/make_readings.py
python examples/sensors/make_readings.py --molene
"""

import argparse

import numpy as np
import pandas as pd

HOURS = 720


def six_sensors() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Temperatures of a month on a hillside: days, weather that passes from west to east, and gaps."""
    rng = np.random.default_rng(0)
    places = pd.DataFrame(rng.uniform(0, 2, (6, 2)).round(2), [f"s{i}" for i in range(6)], ["x", "y"])
    hours = np.arange(HOURS)
    weather = np.convolve(rng.normal(0, 1.2, HOURS + 120), np.exp(-np.arange(60) / 20), "same")
    columns = {}
    for sensor, (x, y) in places.iterrows():
        day = (3 - y) * np.sin(2 * np.pi * (hours - 9) / 24)
        front = np.interp(hours + 40 - 6 * x, np.arange(len(weather)), weather)
        columns[sensor] = 12 - 2 * y + day + front + rng.normal(0, 0.2, HOURS)
    readings = pd.DataFrame(columns, pd.date_range("2026-03-01", periods=HOURS, freq="h", name="time")).round(2)
    return readings.mask(rng.random(readings.shape) < 0.02), places.rename_axis("sensor")


def weather_stations() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The temperatures of the Molène network in January 2014, in degrees Celsius, and places in kilometres."""
    from graphact.graph import points_on_earth
    from graphact_lab.data.download import locate
    from graphact_lab.data.molene import read_molene

    found = read_molene(locate("molene"))
    names = [f"s{i}" for i in range(len(found.stations))]
    hours = pd.date_range("2014-01-01", periods=len(found.kelvin), freq="h", name="time")
    places = pd.DataFrame(points_on_earth(*found.degrees.T).round(3), names, ["x", "y", "z"])
    return pd.DataFrame((found.kelvin - 273.15).round(2), hours, names), places.rename_axis("sensor")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molene", action="store_true", help="the 32 weather stations instead")
    readings, places = weather_stations() if parser.parse_args().molene else six_sensors()
    readings.to_csv("readings.csv")
    places.to_csv("places.csv")
    print(f"readings.csv: {readings.shape[0]} times of {readings.shape[1]} sensors; places.csv")
