"""The claims of the paper and ours as paired differences, from stored results.

    python studies/differences.py [results]

Reads the folders of results that are there and prints Markdown. A difference is a mean over runs on the same graphs,
splits and nodes with its 95 % interval: over graphs where graphs were drawn, corrected for overlapping splits where one
data set was split again and again (see graphact.experiments.pairing). Bold differences exclude 0; d is the effect size,
mean over standard deviation of the independent units. Figures of the paper are taken as exact numbers.
"""

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from graphact.experiments.pairing import by_place, choose, difference, place_of
from graphact.experiments.registry import find_experiment
from graphact.experiments.store import Store, StoreError

NETWORKS = ("relu", "max-l", "max-ga", "median-l", "median-ga", "kernel-ga", "fir")
LOCALIZED = {"max-ga": "max-l", "median-ga": "median-l"}
FILMS = {"toy-story": 0.968, "contact": 1.018, "return-of-the-jedi": 0.998}
PUBLISHED_ACCURACY = 73.9
ORDERS = (20, 25, 30, 35)  # of the filters in consensus
LOSSES = (0.025, 0.05, 0.075, 0.1, 0.125, 0.15)
NEAR_CHANCE = 30.0  # %, where chance is 25
LEAST_SQUARES = "centralised linear least squares on all stations"
FIR = "least-squares FIR of order 35"
RATINGS = ("mean of the training ratings", "user's mean + offset", "ridge regression on the user's centred ratings")


def best_source_localization(rows):
    """Accuracy of the best preset."""

    def line(name):
        ours = choose(rows, kind="model", method=name)
        return [mean(ours, 1), shown(ours, PUBLISHED_ACCURACY, 1), shown(ours, choose(rows, method="relu"), 1)]

    yield "Source localization, preset best: accuracy (%)"
    yield from table(["network", "accuracy", "minus the paper's 73.9", "minus ReLU"], line)


def best_consensus(rows):
    """Error of the best preset, and under link loss."""

    def line(name):
        ours = choose(rows, kind="model", method=name, condition={})
        lossy = [
            mean(choose(rows, kind="model", method=name, condition={"loss_probability": p}), 4) for p in (0.05, 0.15)
        ]
        others = [choose(rows, method=FIR), choose(rows, method=f"{FIR} of the prepared signals")]
        return [mean(ours, 4), *(shown(ours, other, 4) for other in others), *lossy]

    yield "Consensus, preset best: RMSE"
    heads = [
        "network",
        "RMSE",
        "minus least-squares FIR",
        "minus the same of prepared signals",
        "5 % lost",
        "15 % lost",
    ]
    yield from table(heads, line)


def best_denoising(rows):
    """Error of the best preset at 3 dB."""
    at = {"snr_db": 3.0}
    names = [LEAST_SQUARES, f"{LEAST_SQUARES}, with a constant", "centralised Wiener filter", "relu"]
    others = [choose(rows, method=name, condition=at) for name in names]

    def line(name):
        ours = choose(rows, kind="model", method=name, condition=at)
        return [mean(ours, 3), *(shown(ours, other, 3) for other in others)]

    yield "Denoising, preset best: RMSE (K) at 3 dB"
    yield from table(["network", "RMSE", "minus linear", "minus affine", "minus Wiener", "minus ReLU"], line)


def best_recommendation(rows):
    """Error of the best preset for each film, and for the three together."""
    for film, published in FILMS.items():
        yield from recommendation_of(choose(rows, condition={"film": film}), film, published)
    yield from recommendation_of(over_films(rows), "mean of the three films", round(fmean(FILMS.values()), 3))


def recommendation_of(rows, films, published):
    others = [choose(rows, method=name) for name in (*RATINGS, "fill-in alone", "relu")]

    def line(name):
        ours = choose(rows, kind="model", method=name)
        return [mean(ours, 3), shown(ours, published, 3), *(shown(ours, other, 3) for other in others)]

    yield f"Recommendation, preset best, {films}: RMSE"
    heads = ["network", "RMSE", f"minus the paper's {published}", "minus a constant", "minus the user's mean"]
    yield from table([*heads, "minus ridge", "minus fill-in alone", "minus ReLU"], line)


def over_films(rows):
    """One row for each method and split: the mean of its films."""
    splits = defaultdict(list)
    for row in rows:
        splits[row["kind"], row["method"], row["split"]].append(row)
    return [{**films[0], "node": None, "value": fmean(row["value"] for row in films)} for films in splits.values()]


def paper_denoising(rows):
    """Networks at the paper's settings."""

    def setting(name, order):
        return choose(rows, kind="model", method=name, features=4, order=order, condition={"snr_db": 3.0})

    yield from compared("Denoising, preset paper, F = 4: RMSE (K)", setting, (1, 2, 4, 8), 3)


def paper_consensus(rows):
    """Networks at the paper's settings, with all links and without some."""

    def setting(name, order):
        return choose(rows, kind="model", method=name, order=order, condition={})

    yield from compared("Consensus, preset paper: RMSE", setting, ORDERS, 4)
    for order in ORDERS:
        yield f"Consensus, preset paper, K = {order}: what lost links add to the RMSE, minus the same of FIR"

        def degrading(name, order=order):
            losses = [{"loss_probability": probability} for probability in LOSSES]
            return [shown(added(rows, name, order, loss), added(rows, "fir", order, loss), 4) for loss in losses]

        yield from table(["network", *(f"{100 * p:g} % lost" for p in LOSSES)], degrading, NETWORKS[:-1])


def compared(title, setting, orders, digits):
    """Networks against FIR, against ReLU, and graph-adaptive ones against localized ones, at every order."""

    def minus(other_than):
        return lambda name: [shown(setting(name, k), setting(other_than(name), k), digits) for k in orders]

    heads = ["network", *(f"K = {order}" for order in orders)]
    yield f"{title} minus that of FIR"
    yield from table(heads, minus(lambda _: "fir"), NETWORKS[:-1])
    yield f"{title} minus that of ReLU"
    yield from table(heads, minus(lambda _: "relu"), NETWORKS[1:-1])
    yield f"{title} minus that of the localized version"
    yield from table(heads, minus(LOCALIZED.__getitem__), LOCALIZED)


def added(rows, name, order, condition):
    """What a condition adds to the values of a network."""
    whole = by_place(choose(rows, kind="model", method=name, order=order, condition={}))
    under = choose(rows, kind="model", method=name, order=order, condition=condition)
    return [{**row, "value": row["value"] - whole[place_of(row)]} for row in under]


def source_localization_table(protocol):
    """Networks against ReLU, and the paper's best one against all others."""

    def section(rows):
        def cell(name, features, hops):
            return choose(rows, kind="model", method=name, features=features, hops=hops)

        def against_relu(name):
            ours = (cell(name, features, paper_hops(name)) for features in (2, 4, 8))
            return [shown(some, cell("relu", some[0]["features"], None), 1) for some in ours]

        def of_the_best(name):
            return [shown(cell("max-ga", f, 2), cell(name, f, paper_hops(name)), 1) for f in (2, 4, 8)]

        def against_localized(name):
            return [shown(cell(name, f, 2), cell(LOCALIZED[name], f, 1), 1) for f in (2, 4, 8)]

        heads = ["F = 2", "F = 4", "F = 8"]
        yield f"Source localization, protocol {protocol}: accuracy minus that of ReLU (%)"
        yield from table(["network", *heads], against_relu, NETWORKS[1:-1])
        yield f"Source localization, protocol {protocol}: accuracy of max-ga (2 hops) minus that of each network (%)"
        others = [name for name in NETWORKS[:-1] if name != "max-ga"]
        yield from table(["minus", *heads], of_the_best, others)
        yield f"Source localization, protocol {protocol}: accuracy minus that of the localized version (%)"
        yield from table(["network", *heads], against_localized, LOCALIZED)
        dead = [sum(row["value"] < NEAR_CHANCE for row in cell("relu", f, None)) for f in (2, 4, 8)]
        yield f"ReLU networks below {NEAR_CHANCE} % at F = 2, 4, 8: {dead[0]}, {dead[1]}, {dead[2]}"
        yield ""

    return section


def paper_hops(name):
    """The hops that the paper's table has for a network."""
    return {"relu": None, "max-ga": 2, "median-ga": 2}.get(name, 1)


def converged_recommendation(rows):
    """Networks against ReLU and a constant in the setting that fits the paper."""

    def line(name):
        cells = []
        for film in FILMS:
            ours = choose(rows, method=name, condition={"film": film})
            for other in ("relu", RATINGS[0]):
                cells.append(shown(ours, choose(rows, method=other, condition={"film": film}), 3))
        return cells

    yield "Recommendation, protocol converged: RMSE minus that of ReLU, and minus that of a constant"
    heads = [f"{film}, minus {other}" for film in FILMS for other in ("ReLU", "constant")]
    yield from table(["network", *heads], line, NETWORKS[:-1])


SECTIONS = {
    "source-localization-converged": source_localization_table("converged"),
    "source-localization-paper": source_localization_table("paper"),
    "consensus-paper": paper_consensus,
    "denoising-paper": paper_denoising,
    "recommendation-converged": converged_recommendation,
    "source-localization-best": best_source_localization,
    "consensus-best": best_consensus,
    "denoising-best": best_denoising,
    "recommendation-best": best_recommendation,
}


def table(heads, line, names=NETWORKS):
    """One line for each network that was run."""
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for name in names:
        yield f"| {name} | {' | '.join(line(name))} |"
    yield ""


def mean(rows, digits):
    return f"{fmean(row['value'] for row in rows):.{digits}f}"


def shown(ours, other, digits):
    """A difference with its interval, bold if it excludes 0, and its effect size."""
    if not ours or not other:
        return "not run"
    rows = [*ours, *([] if isinstance(other, float) else other)]
    if not all(math.isfinite(row["value"]) for row in rows):
        return "a run diverged"
    found = difference(ours, other, overlap=find_experiment(ours[0]["experiment"]).measure.overlap)
    if found.mean == found.margin == 0:
        return "0"
    text = f"{found.mean:+.{digits}f} ± {found.margin:.{digits}f}"
    return f"{f'**{text}**' if found.is_certain else text} (d {found.effect:+.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=Path("results"))
    options = parser.parse_args()
    there = {name: SECTIONS[name] for name in SECTIONS if (options.directory / name / "rows").is_dir()}
    if not there:
        sys.exit(f"no results in {options.directory}: expected folders such as {next(iter(SECTIONS))} with rows")
    for name, section in there.items():
        try:
            rows = Store(options.directory / name).rows()
        except StoreError as error:
            sys.exit(str(error))
        sys.stdout.writelines(f"{line}\n" for line in section(rows))


if __name__ == "__main__":
    main()
