"""Output of benchmarks: a line at a time and unbuffered, and the machine that figures belong to."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

PACKAGES = ("torch", "torch_geometric", "numba", "triton", "numpy")


def echo(line):
    """Write a line and do not keep it back."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def describe_machine(device):
    """Return the device, its processor, versions, and how many processes wanted a core in the last minute."""
    import torch

    known = {
        each.metadata["Name"].lower().replace("-", "_"): each.version for each in importlib.metadata.distributions()
    }
    found = {"device": torch.cuda.get_device_name() if device == "cuda" else device, "processor": processor()}
    found |= {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "load": round(os.getloadavg()[0], 1)}
    return found | {"python": platform.python_version()} | {name: known[name] for name in PACKAGES if name in known}


def processor():
    """Return the name of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
