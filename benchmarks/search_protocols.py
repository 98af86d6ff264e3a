"""Find the training settings of the protocols `converged`: the same trials for every method, validation scores alone.

    python benchmarks/search_protocols.py denoising --out results/search/denoising
    python benchmarks/search_protocols.py consensus --device cuda --out DIR
    python benchmarks/search_protocols.py denoising --out DIR --show         what the rows echo, without running

Every method is trained with every trial, on seed 1000, which no table uses. Where graphs and signals are drawn, it
draws its own. Temperatures and ratings are one data set each, which it splits again: what is reported there has been
seen. The score of a trial is how much worse than its own best trial a method validates with it, in percent, averaged
over the methods; the lowest wins. Run the same command again after a stop: finished cells are not repeated. At the end
all rows are in one file.
"""

import argparse
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

from arguments import count
from output import echo

from graphact_lab.commands.run import pick_device
from graphact_lab.descriptions import EXPERIMENTS, find_experiment, find_protocol
from graphact_lab.job_progress import JobWatcher
from graphact_lab.protocols import jobs_of
from graphact_lab.runner import run_protocol
from graphact_lab.store import Store, StoreError

SEED = 1000
# One setting of each experiment, under its first condition, on few graphs or splits
SETTINGS = {
    "source-localization": {"features": "8", "hops": "2", "localized_hops": "1", "graphs": "5", "splits": "1"},
    "consensus": {"orders": "5", "graphs": "5", "splits": "1", "loss_probabilities": "", "loss_realizations": "0"},
    "denoising": {"features": "4", "orders": "1", "sweep": "", "splits": "5"},
    "recommendation": {"splits": "5"},
}
TRIALS = {
    "source-localization": {"learning_rate": ("0.005", "0.02", "0.05"), "per_feature": ("false", "true")},
    "consensus": {"learning_rate": ("0.001", "0.003", "0.01", "0.03"), "bias": ("false", "true"), "epochs": ("400",)},
    "denoising": {"learning_rate": ("0.003", "0.01", "0.03", "0.1", "0.3"), "bias": ("false", "true")},
    "recommendation": {"learning_rate": ("0.0003", "0.001", "0.003", "0.01", "0.03", "0.1")},
}


def trials_of(experiment, methods, changes):
    """Each trial in words, with its protocol."""
    names = list(TRIALS[experiment])
    for values in product(*TRIALS[experiment].values()):
        trial = dict(zip(names, values, strict=True))
        settings = SETTINGS[experiment] | trial | changes
        words = ", ".join(f"{name} {value}" for name, value in trial.items())
        protocol = find_protocol(experiment, "paper", "converged", methods, settings)
        yield words, replace(protocol, conditions=protocol.conditions[:1])


def scores_of(store, protocol):
    """The mean validation metric of each method, over all replicas and conditions; None where it was not run."""
    found = {}
    rows = {}
    for row in store.rows():
        if row["kind"] == "model":
            rows.setdefault(str(row["settings"]), []).append(row["validation"])
    for job in jobs_of(protocol, SEED):
        found.setdefault(job.method, []).extend(rows.get(str(job.settings()), [None]))
    return {
        method: sum(values) / len(values) if values and None not in values else None for method, values in found.items()
    }


def table_of(store, experiment, trials):
    """The validation scores in Markdown, a line a method, and the mean loss of each trial."""
    higher = find_experiment(experiment).measure.higher_is_better
    scores = {words: scores_of(store, protocol) for words, protocol in trials}
    methods = list(next(iter(scores.values())))
    lines = ["| method | " + " | ".join(scores) + " |", "|---" * (len(scores) + 1) + "|"]
    losses = {words: [] for words in scores}
    for method in methods:
        own = {words: each[method] for words, each in scores.items()}
        known = [value for value in own.values() if value is not None]
        best = (max if higher else min)(known, default=None)
        shown = ["" if value is None else f"{value:.5g}" for value in own.values()]
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
        if len(known) == len(own):
            for words, value in own.items():
                losses[words].append(100 * abs(value - best) / best)
    means = {words: sum(each) / len(each) for words, each in losses.items() if each}
    lines.append(
        "| worse than a method's best trial, % | " + " | ".join(f"{mean:.2f}" for mean in means.values()) + " |"
    )
    return "\n".join(lines), min(means, key=means.get, default="none: no method has all trials")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--out", type=Path, required=True, help="folder for rows and table")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--data", type=Path, help="folder of the data sets (default: as graphact-lab run)")
    parser.add_argument("--activation", action="append", default=[], help="only these methods (repeatable)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="as graphact-lab run takes it")
    parser.add_argument("--trials", type=count, help="no more than this many trials now")
    parser.add_argument("--show", action="store_true", help="print the table and run nothing")
    options = parser.parse_args()
    try:
        changes = dict(change.split("=", 1) for change in options.set)
        trials = list(trials_of(options.experiment, tuple(options.activation), changes))
        store = Store(options.out)
        if not options.show:
            store.create(f"python benchmarks/search_protocols.py {options.experiment}")
            for words, protocol in trials[: options.trials]:
                echo(words)
                run_protocol(
                    protocol, store, seed=SEED, device=pick_device(options.device), data=options.data,
                    watcher=JobWatcher(shows=True), with_baselines=False,
                )  # fmt: skip
            store.publish()
        table, best = table_of(store, options.experiment, trials)
    except KeyboardInterrupt:
        sys.exit("stopped; finished cells are kept, run the same command again to go on")
    except (StoreError, ValueError) as problem:
        sys.exit(str(problem))
    command = f"`python benchmarks/search_protocols.py {options.experiment}`: validation, seed {SEED}"
    (options.out / "table.md").write_text(f"{command}\n\n{table}\n\nBest: {best}\n")
    echo(f"{table}\n\nbest: {best}")


if __name__ == "__main__":
    main()
