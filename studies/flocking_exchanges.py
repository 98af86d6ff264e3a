"""Gains by number of exchanges in flocking: ``studies/flocking_exchanges.py results/flocking/full``.

Policies beside the best pointwise one, by its cost on validation flights, that has no more exchanges; then what more
exchanges do, spent on a longer filter or on an activation. Differences are paired over realizations, with 95 %
intervals; p is Holm's over the lines of a table.
"""

import argparse
import sys
from pathlib import Path
from statistics import fmean

from graphact_lab.experiments.flocking.report import GAPS, Line, Results, compared, mean_spread, values
from graphact_lab.statistics import difference, holm
from graphact_lab.store import Store
from graphact_lab.style import markdown_table

CONDITIONS = {"as trained": {}, "with 50 % of the links lost": {"loss": 0.5}}
MORE = (  # method and order, from which and to which
    (("relu", 1), ("relu", 2)),
    (("tanh", 1), ("tanh", 2)),
    (("relu", 1), ("max-l", 1)),
    (("relu", 1), ("max-ga", 1)),
    (("relu", 2), ("max-ga", 2)),
    (("relu", 2), ("relu", 4)),
    (("tanh", 2), ("tanh", 4)),
    (("leaky-relu", 2), ("leaky-relu", 4)),
)


def with_no_more(results: Results, exchanges: int) -> Line:
    """The best pointwise policy, by validation flights, with at most this many exchanges."""
    lines = [line for line in results.lines if line.is_pointwise and not line.delayed and line.exchanges <= exchanges]
    return min(lines, key=lambda line: fmean(values(results.of(line), "validation")))


def equal_section(results: Results, exchanges: int) -> str:
    """All policies with a number of exchanges, beside the best pointwise one that has no more."""
    lines = [line for line in results.lines if line.exchanges == exchanges and not line.delayed]
    reference, parts = with_no_more(results, exchanges), [f"## {exchanges} exchange{'s' if exchanges > 1 else ''}"]
    cells = [
        (line.label, *(mean_spread(values(results.of(line, **condition))) for condition in CONDITIONS.values()))
        for line in dict.fromkeys((*lines, reference))
    ]
    parts.append(markdown_table(("policy", *CONDITIONS), cells))
    for words, condition in CONDITIONS.items():
        gaps = compared(results, lines, reference, **condition)
        parts += [f"Minus {reference.label}, {words}:", markdown_table(GAPS, gaps)]
    return "\n\n".join(parts)


def more_section(results: Results) -> str:
    """Return the effect of more exchanges on a policy."""
    known = {(line.method, line.order): line for line in results.lines if not line.delayed and line.hops in (None, 1)}
    pairs = [(known[first], known[second]) for first, second in MORE if first in known and second in known]
    parts = ["## More exchanges"]
    for words, condition in CONDITIONS.items():
        gaps = [difference(results.of(more, **condition), results.of(less, **condition)) for less, more in pairs]
        adjusted = holm([gap.p_unlike() for gap in gaps])
        cells = [
            (
                less.label,
                more.label,
                f"{less.exchanges} to {more.exchanges}",
                f"{gap.mean:+.3f} ± {gap.margin:.3f}",
                f"{p:.2g}",
            )
            for (less, more), gap, p in zip(pairs, gaps, adjusted, strict=True)
        ]
        parts += [
            f"Second minus first, {words}:",
            markdown_table(("first", "second", "exchanges", "difference", "p (Holm)"), cells),
        ]
    return "\n\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    options = parser.parse_args()
    results = Results(Store(options.results).rows())
    numbers = sorted({line.exchanges for line in results.lines})
    parts = [f"What `studies/flocking_exchanges.py {options.results}` says:"]
    parts += [*(equal_section(results, number) for number in numbers), more_section(results)]
    sys.stdout.write("\n\n".join(parts) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
