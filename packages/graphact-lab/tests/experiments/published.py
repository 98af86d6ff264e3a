"""Keys of the cells that the commands of published results stand for."""

import importlib
import sys
from functools import cache

from graphact_lab.cli import make_parser
from graphact_lab.commands.run import find_settings
from graphact_lab.protocols import Protocol, jobs_of, key_of_baselines
from support.places import ROOT

ON_A_DEVICE = "python benchmarks/device_rows.py"


@cache
def device_rows():
    """Return ``benchmarks/device_rows.py`` as a module."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("device_rows")
    finally:
        sys.path.pop(0)


def keys_of_runs(store):
    """Return the keys of the cells of all ``graphact-lab run``."""
    keys = set()
    for command in store.commands():
        if command.startswith(ON_A_DEVICE):
            continue
        options = make_parser().parse_args(command.split()[1:])
        protocol = find_settings(options)
        for seed in range(options.seed, options.seed + options.seeds):
            if isinstance(protocol, Protocol):
                for job in jobs_of(protocol, seed):
                    keys |= {job.key, key_of_baselines(protocol, job.condition, seed)}
            else:
                keys |= {protocol.key(job, seed) for job in (None, *protocol.jobs)}
    return keys


def keys_of_devices(store, name):
    """Return the keys of the cells that a device may have added to a folder of results."""
    if not any(command.startswith(ON_A_DEVICE) for command in store.commands()):
        return set()
    return {key for cell in device_rows().all_cells() if cell.folder == name for key in cell.titles}
