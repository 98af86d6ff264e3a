"""Starting a handful of Python processes that work together, and waiting for all of them."""

import os
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]


def environment(**extra):
    """One thread each, and the modules of the tests at hand."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths)), **extra}


def run_together(script, count, directory, timeout=300):
    """Run ``script RANK DIRECTORY`` in several processes at once; return the exit codes and what they printed."""
    logs = [Path(directory, f"{Path(script).stem}-{rank}.log") for rank in range(count)]
    started = []
    for rank, log in enumerate(logs):
        with log.open("w") as output:
            command = [sys.executable, str(script), str(rank), str(directory)]
            started.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment()))
    deadline = time.monotonic() + timeout
    try:
        while any(process.poll() is None for process in started):
            if any(process.poll() for process in started) or time.monotonic() > deadline:
                time.sleep(2)  # the others may still say what they found
                break
            time.sleep(0.05)
    finally:
        for process in started:
            process.kill()
    return [process.wait() for process in started], [log.read_text() for log in logs]
