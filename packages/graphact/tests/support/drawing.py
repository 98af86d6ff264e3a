"""Random choices with names: a case is a kind and a seed, and every choice in it can be set to a simpler one.

Each choice has a source of randomness of its own, so that setting one leaves the others as they were. Options stand in
order, the simplest first: a finding is made smaller by trying earlier options as long as it stays a finding.
"""

import time
import traceback
import zlib
from collections import Counter

import numpy as np


class Draw:
    """The choices of one case.

    Attributes:
        chosen: for each name, the number of the option and the option itself.
        counts: how many checks of each kind were made.
    """

    def __init__(self, seed, fixed=None):
        self.seed, self.fixed = seed, dict(fixed or {})
        self.chosen, self.counts = {}, Counter()

    def rng(self, name):
        """The source of randomness of a choice."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def choice(self, name, options, weights=None):
        """One of the options, the simplest first; ``weights`` say how often each is taken."""
        share = None if weights is None else np.array(weights) / sum(weights)
        number = int(self.rng(name).choice(len(options), p=share))
        number = min(self.fixed.get(name, number), len(options) - 1)
        self.chosen[name] = number, options[number]
        return options[number]

    def integer(self, name, low, high):
        return self.choice(name, range(low, high + 1))

    def flag(self, name, share=0.5):
        return self.choice(name, (False, True), (1 - share, share))

    def count(self, kind):
        self.counts[kind] += 1


def outcome(scenario, seed, fixed=None):
    """Run one case; the draw, and the error that makes it a finding, or None."""
    draw = Draw(seed, fixed)
    try:
        scenario(draw)
    except Exception as error:
        return draw, error
    return draw, None


def kind_of(error):
    """Return the identity of a finding: the error, and the lines that led to it."""
    frames = () if error is None else traceback.extract_tb(error.__traceback__)[-2:]
    return type(error), tuple((frame.filename, frame.lineno) for frame in frames)


def shrink(scenario, seed, fixed=None, seconds=60.0):
    """The same kind of error with the simplest options that still lead to it; the draw and the error."""
    draw, error = outcome(scenario, seed, fixed)
    kind, until, changed = kind_of(error), time.monotonic() + seconds, True
    fixed = {name: number for name, (number, _) in draw.chosen.items()}
    while changed:
        changed = False
        for name in list(fixed):
            number = fixed.get(name, 0)  # a simpler case has fewer choices
            for simpler in dict.fromkeys((0, number // 2, number - 1)):
                if not 0 <= simpler < number or time.monotonic() > until:
                    continue
                tried, found = outcome(scenario, seed, {**fixed, name: simpler})
                if kind_of(found) == kind:
                    fixed, draw, error, changed = {**fixed, name: simpler}, tried, found, True
                    fixed = {known: number for known, (number, _) in draw.chosen.items()}
                    break
    return draw, error


def as_settings(draw):
    """The choices as options of the command line that lead to this case again."""
    return " ".join(f"--set '{name}={number}'" for name, (number, _) in draw.chosen.items())
