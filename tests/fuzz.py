"""Random graphs, signals and calls against plain loops, and damaged files for every reader, as long as one likes.

python tests/fuzz.py --minutes 60 --seed 7         both, until the time is over
python tests/fuzz.py --only activations            some kinds of cases (--list names them)
python tests/fuzz.py --case activations:1234       one case again, in full

The cases run in a second process: one that crashes it is a finding, too. A finding is made as small as it gets and
printed with the options that lead to it again; the exit code is then 1.
"""

import argparse
import faulthandler
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "packages" / "graphact" / "tests"))
from support import api_cases, file_cases
from support.drawing import Draw, as_settings, kind_of, outcome, shrink

SCENARIOS = {**api_cases.SCENARIOS, **file_cases.SCENARIOS}
SHARES = {**api_cases.SHARES, **file_cases.SHARES}
SECONDS, WAITING = 60, 600  # of the processor and of the clock that a case may take; it may have to compile kernels
MAX_FINDINGS = 10


class Hanging(Exception):  # noqa: N818, not raised by anything that is tested
    """A case has not ended in time."""


def run(minutes, seed, only, note=None, log=lambda text: sys.stdout.write(f"{text}\n")):
    """Run cases until the time is over; counts of cases and checks, and the findings as text."""
    end, last, counts, findings = time.monotonic() + 60 * minutes, time.monotonic(), Counter(), {}
    names = only or list(SCENARIOS)
    shares = np.array([SHARES[name] for name in names]) / sum(SHARES[name] for name in names)
    number = seed * 10_000_000
    while time.monotonic() < end and len(findings) < MAX_FINDINGS:
        number += 1
        name = names[int(np.random.default_rng(number).choice(len(names), p=shares))]
        if note is not None:
            note.write_text(f"{name}:{number}")
        draw, error = timed(name, number)
        counts[f"cases of {name}"] += 1
        counts.update({f"{kind}": count for kind, count in draw.counts.items()})
        if error is not None:
            key = kind_of(error), draw.chosen.get("reader")
            if key not in findings:
                findings[key] = describe(name, number)
                log(findings[key])
        if time.monotonic() - last > 20:
            last = time.monotonic()
            cases = sum(count for kind, count in counts.items() if kind.startswith("cases"))
            checks = sum(count for kind, count in counts.items() if not kind.startswith("cases"))
            log(f"{(end - last) / 60:5.1f} minutes left: {cases} cases, {checks} checks, {len(findings)} findings")
    return counts, list(findings.values())


def timed(name, number, fixed=None):
    """One case, which must end in time."""

    def hang(*_):
        raise Hanging(f"not done after {SECONDS} seconds of the processor, or {WAITING} of the clock")

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, SECONDS), (signal.ITIMER_REAL, signal.SIGALRM, WAITING))
    before = {each: signal.signal(each, hang) for _, each, _ in timers}
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        return outcome(SCENARIOS[name], number, fixed)
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for each, handler in before.items():
            signal.signal(each, handler)


def describe(name, number, fixed=None):
    """A finding in words: the error, the smallest case that leads to it, and the command that runs it."""
    draw, error = shrink(SCENARIOS[name], number, fixed)
    if error is None:
        return f"FINDING {name}:{number}: seen once and not again: it depends on the cases before it"
    where = "".join(traceback.format_tb(error.__traceback__)[-2:])
    choices = "".join(f"    {choice} = {option!r}\n" for choice, (_, option) in draw.chosen.items())
    again = f"python tests/fuzz.py --case '{name}:{number}' {as_settings(draw)}"
    return f"FINDING {name}:{number}\n  {type(error).__name__}: {error}\n{where}  smallest case:\n{choices}  {again}"


def supervise(options):
    """Run the cases in a second process, so that one which kills it is reported."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "case"
        arguments = [sys.executable, __file__, "--worker", str(note), "--minutes", str(options.minutes)]
        arguments += ["--seed", str(options.seed), *(word for name in options.only for word in ("--only", name))]
        code = subprocess.run(arguments, check=False).returncode
        if code not in (0, 1):
            write_line(f"FINDING {note.read_text() if note.exists() else 'before the first case'}: ended with {code}")
    return 0 if code == 0 else 1


def write_line(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def report(counts, findings):
    for kind, count in sorted(counts.items()):
        write_line(f"{count:9d}  {kind}")
    checks = sum(count for kind, count in counts.items() if not kind.startswith("cases"))
    write_line(f"{sum(counts.values()) - checks} cases, {checks} checks, {len(findings)} findings")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0, help="another number, other cases")
    parser.add_argument("--only", action="append", default=[], choices=SCENARIOS, help="a kind of cases; repeatable")
    parser.add_argument("--list", action="store_true", help="name the kinds of cases")
    parser.add_argument("--case", help="KIND:NUMBER of one case to run")
    parser.add_argument("--set", action="append", default=[], help="CHOICE=NUMBER: an option of that case")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.minutes > 0:
        parser.error(f"--minutes must be above 0, got {options.minutes:g}")
    warnings.simplefilter("ignore")
    if options.list:
        for name, scenario in SCENARIOS.items():
            write_line(f"{name:20s}{(scenario.__doc__ or '').splitlines()[0]}")
        return 0
    if options.case:
        name, _, number = options.case.rpartition(":")
        if name not in SCENARIOS or not number.isdecimal():
            parser.error(f"--case must be KIND:NUMBER with a kind of --list, got {options.case!r}")
        fixed = {key: int(value) for key, _, value in (text.rpartition("=") for text in options.set)}
        draw = Draw(int(number), fixed)
        SCENARIOS[name](draw)
        write_line(f"nothing found, {sum(draw.counts.values())} checks")
        return 0
    if options.worker is None:
        return supervise(options)
    faulthandler.enable()
    torch.set_num_threads(1)
    counts, findings = run(options.minutes, options.seed, options.only, options.worker, write_line)
    report(counts, findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
