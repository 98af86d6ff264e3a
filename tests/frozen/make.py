"""Compute the frozen values, compare them with those that are kept, and with ``--write`` replace them.

Run as ``python tests/frozen/make.py [--write] [--only CASE ...] [--list]`` with ``tests`` and the packages on the path.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from frozen import cases, values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the values that are kept")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="these cases alone; others stay")
    parser.add_argument("--files", action="store_true", help="with --write: replace the model files, too")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if values.FILE.exists() and options.write:
        sys.stderr.write("replacing frozen values: say in the commit why a value may change\n")
    computed_on = values.stored()[0]["machine"] if options.only else values.machine()
    if options.write and computed_on != values.machine() and not cases.SAME_MACHINE.isdisjoint(options.only):
        parser.error(f"--only with float32 values of {computed_on}, not of {values.machine()}: write all cases")
    if options.write and (options.files or not cases.FILES.exists()):
        cases.write_files()
    kept = values.read() if values.FILE.exists() else {}
    found, seconds, changed = dict(kept), {}, 0
    for name in options.only or cases.CASES:
        if reason := values.missing(name):
            sys.stderr.write(f"not computed: {name}: {reason}\n")
            if options.write and name not in kept:
                return 1
            continue
        begun = time.process_time()
        found[name] = cases.compute(name)
        seconds[name] = time.process_time() - begun
        wrong = values.differences(kept[name], found[name], 0.0) if name in kept else ["new"]
        changed += bool(wrong)
        for line in wrong[:5]:
            sys.stdout.write(f"{name}: {line}\n")
    slowest = sorted(seconds, key=seconds.__getitem__)[-12:]
    sys.stdout.write(f"{sum(seconds.values()):.1f} s; {', '.join(f'{n} {seconds[n]:.1f} s' for n in slowest)}\n")
    if options.write:
        values.write({name: found[name] for name in cases.CASES}, computed_on)
        sys.stdout.write(f"{values.FILE}: {values.FILE.stat().st_size:,} bytes\n")
        return 0
    sys.stdout.write(f"{changed} cases differ in at least a bit; nothing was written\n")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
