"""The file of frozen values: all numbers in one array, and a JSON index of names, shapes and texts."""

import importlib.util
import json
import platform
from pathlib import Path

import numpy as np
import torch

from frozen import cases
from frozen import library as names

FILE = Path(__file__).parent / "values.npz"
TOLERANCE = 1e-12  # relative and absolute
FLOAT32_TOLERANCE = 1e-5  # of float32 values where another processor or version rounds


def machine():
    """Return what decides the last bits of float32: versions of torch and NumPy, processor and its instructions."""
    listed = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in listed if line.startswith("model name")]
    processor = models[0] if models else platform.processor()
    cpu = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, NumPy {np.__version__}, {processor} ({platform.machine()} {cpu})"


def write(found, computed_on):
    """Write the values of all cases, those in float32 as computed on a machine, see :func:`machine`."""
    numbers, index, begin = [], {}, 0
    for name, values in found.items():
        index[name] = {}
        for key, value in values.items():
            if isinstance(value, str):
                index[name][key] = value
                continue
            numbers.append(value.reshape(-1))
            index[name][key] = [begin, *value.shape]
            begin += value.size
    about = json.dumps({"machine": computed_on, "cases": index}, separators=(",", ":")).encode()
    np.savez_compressed(FILE, numbers=np.concatenate(numbers), about=np.frombuffer(about, np.uint8))


def stored():
    with np.load(FILE) as content:
        return json.loads(content["about"].tobytes()), content["numbers"]


def read():
    """The values of all cases."""
    about, numbers = stored()
    found = {}
    for name, values in about["cases"].items():
        found[name] = {}
        for key, place in values.items():
            if isinstance(place, str):
                found[name][key] = place
            else:
                begin, *shape = place
                found[name][key] = numbers[begin : begin + int(np.prod(shape))].reshape(shape)
    return found


def missing(name):
    """Return why a case cannot be computed here; empty if it can."""
    data, packages = cases.NEEDS[name]
    for dataset in data:
        if not names.has_data(dataset):
            return f"needs the data set {dataset}: set GRAPHACT_DATA to a folder that holds it"
    for package in packages:
        if importlib.util.find_spec(package) is None:
            return f"needs the package {package}"
    return ""


def differences(expected, found, tolerance):
    """A line for each value that is missing, new or another one."""
    lines = [f"{key} is missing" for key in expected.keys() - found.keys()]
    lines += [f"{key} is new" for key in found.keys() - expected.keys()]
    for key in expected.keys() & found.keys():
        one, other = expected[key], found[key]
        if isinstance(one, str) or isinstance(other, str):
            if not (isinstance(one, str) and isinstance(other, str) and one == other):
                lines.append(f"{key} is {other!r:.200} instead of {one!r:.200}")
        elif one.shape != other.shape:
            lines.append(f"{key} has the shape {other.shape} instead of {one.shape}")
        elif not np.allclose(other, one, rtol=tolerance, atol=tolerance, equal_nan=True):
            both = np.isfinite(one) & np.isfinite(other)
            apart = np.abs(one - other, where=both, out=np.full(one.shape, np.inf))
            apart[(one == other) | (np.isnan(one) & np.isnan(other))] = 0
            place = np.unravel_index(apart.argmax(), apart.shape)
            lines.append(f"{key}{list(map(int, place))} is {other[place]!r} instead of {one[place]!r}")
    return sorted(lines)
