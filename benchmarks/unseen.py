"""The presets `best` of source localization and denoising on sources and days that training never saw.

    python benchmarks/unseen.py --out DIR                                10 graphs x 2 nodes, 10 splits of days
    python benchmarks/unseen.py --experiment denoising --data DATA       one of the two
    python benchmarks/unseen.py --graphs 2 --epochs 20 --splits 2 --denoising-epochs 2   less, to see that it runs

Source localization: 8 of the 40 sources, two of each community, are drawn for each graph and split. All their signals
are for testing, signals of the other 32 for training and validation. Denoising: six days of the month, no two of them
adjacent, are drawn for each split: three for testing, three for validation. The 12 hours before and after each are left
out of training. Beside each stand as many samples at random, as the experiments split them. Seed 1, since the
presets were chosen on seed 0. Differences are paired, with 95 % intervals: over the graphs, or over the splits of the
month, corrected for their overlap.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from arguments import count, need_cuda
from output import echo

from graphact.training import Fleet
from graphact_lab.data.diffused_sources import BLOCKS, STEPS
from graphact_lab.descriptions import find_experiment, find_protocol
from graphact_lab.protocols import jobs_of, run_seed
from graphact_lab.runner import make_models
from graphact_lab.splits import data_generator, random_split
from graphact_lab.statistics import choose, difference
from graphact_lab.tasks import DataError, baselines, locate, prepared, prepared_baselines

NETWORKS = ("max-ga", "relu")
RAW = ("max-ga", "relu", "prelu")  # with the signals as they come
BEST = "preset `best`, max-ga"
HELD_OUT = 2  # sources of each community
SEEN_VALIDATION = 96  # of 960 signals of sources that are not held out
HOURS_A_DAY, DAYS, DAYS_A_PART, GAP = 24, 31, 3, 12
CENTRALISED = {
    "centralised linear least squares on all stations, with a constant": "centralised affine least squares",
    "centralised Wiener filter": "centralised Wiener filter",
}


def with_unseen_sources(task):
    """The task with all signals of 8 sources for testing, and none of them elsewhere."""
    details = task.details
    generator = data_generator("unseen sources", details["seed"], details["graph"], details["split"])
    held_out = torch.zeros(BLOCKS.communities, BLOCKS.community_size, dtype=torch.bool)
    for community in held_out:
        community[torch.randperm(BLOCKS.community_size, generator=generator)[:HELD_OUT]] = True
    is_test = held_out.flatten().repeat_interleave(STEPS)
    seen = (~is_test).nonzero().flatten()
    seen = seen[torch.randperm(len(seen), generator=generator)]
    return with_parts(task, seen[SEEN_VALIDATION:], seen[:SEEN_VALIDATION], is_test.nonzero().flatten())


def with_unseen_days(task):
    """The task with whole days for validation and testing, and half a day between them and training."""
    generator = data_generator("unseen days", task.details["seed"], task.details["split"])
    days = nonadjacent_days(2 * DAYS_A_PART, generator)
    hours = torch.arange(HOURS_A_DAY * DAYS)
    is_free = torch.ones(len(hours), dtype=torch.bool)
    for day in days.tolist():
        is_free[HOURS_A_DAY * day - GAP : HOURS_A_DAY * (day + 1) + GAP] = False
    test, validation = (hours.view(DAYS, HOURS_A_DAY)[part].flatten() for part in days.split(DAYS_A_PART))
    return with_parts(task, hours[is_free], validation, test)


def nonadjacent_days(count, generator):
    """Days in random order, no two adjacent; not the first or last, so that every split has as many training hours."""
    while True:
        days = 1 + torch.randperm(DAYS - 2, generator=generator)[:count]
        if bool((days.sort().values.diff() > 1).all()):
            return days


def split_at_random(task, like):
    """The task with as many samples in each part as another one has, at random."""
    place = [task.details[name] for name in ("seed", "graph", "split") if name in task.details]
    count, used = len(task.inputs), len(like.train) + len(like.validation) + len(like.test)
    generator = data_generator("as many at random", *place)
    parts = random_split(count, validation=len(like.validation), test=len(like.test), generator=generator)
    return with_parts(task, parts.train[: len(parts.train) - (count - used)], parts.validation, parts.test)


def with_parts(task, train, validation, test):
    return replace(task, train=train, validation=validation, test=test)


def trained(protocol, method, tasks, seed, device):
    """The test metric of each network of a preset."""
    [job] = jobs_of(replace(protocol, methods=(method,)), seed)
    seeds = [run_seed("replica", seed, replica) for replica in range(len(tasks))]
    return Fleet(make_models(job, tasks), tasks, seeds, device=device).train(protocol.training).test


def nearest_neighbor(task):
    """Accuracy of the class of the nearest training signal, all nodes known."""
    signals = task.inputs.flatten(1).double()
    distances = torch.cdist(signals[task.test], signals[task.train], compute_mode="donot_use_mm_for_euclid_dist")
    answers = task.targets[task.train][distances.argmin(dim=1)]
    return 100 * (answers == task.targets[task.test]).double().mean().item()


def source_localization(options):
    """Pairs of a method and its values, for each way to split."""
    protocol = find_protocol("source-localization", "best")
    protocol = replace(protocol, graphs=options.graphs, splits=options.source_splits, nodes=options.nodes)
    protocol = with_epochs(protocol, options.epochs)
    ordinary = find_experiment(protocol.experiment).make_tasks(protocol, {}, options.seed, None)
    unseen = [with_unseen_sources(task) for task in ordinary]
    random = [split_at_random(task, like) for task, like in zip(ordinary, unseen, strict=True)]
    echo(f"source localization: {len(ordinary)} networks a line, {protocol.training.epochs} epochs")
    for kind, raw in (("unseen", unseen), ("random", random)):
        contrasts = prepared(raw, protocol.preparation)
        for method in NETWORKS:
            yield (
                kind,
                f"preset `best`, {method}",
                raw,
                trained(protocol, method, contrasts, options.seed, options.device),
            )
        for method in RAW:
            yield kind, f"{method}, raw signals", raw, trained(protocol, method, raw, options.seed, options.device)
        yield kind, "centralised 1-NN, raw signals", raw, [nearest_neighbor(task) for task in raw]
        yield kind, "centralised 1-NN, local contrast", raw, [nearest_neighbor(task) for task in contrasts]


def denoising(options):
    """Pairs of a method and its values, for each way to split."""
    protocol = replace(find_protocol("denoising", "best"), splits=options.splits, sweep=())
    protocol = with_epochs(protocol, options.denoising_epochs)
    ordinary = find_experiment(protocol.experiment).make_tasks(protocol, {"snr_db": 3.0}, options.seed, options.data)
    unseen = [with_unseen_days(task) for task in ordinary]
    random = [split_at_random(task, like) for task, like in zip(ordinary, unseen, strict=True)]
    echo(f"denoising, 3 dB: {len(ordinary)} networks a line, {protocol.training.epochs} epochs")
    for kind, plain in (("unseen", unseen), ("random", random)):
        estimates = prepared(plain, protocol.preparation)
        for method in NETWORKS:
            values = trained(protocol, method, estimates, options.seed, options.device)
            yield kind, f"preset `best`, {method}", plain, values
        figures = [baselines(task) for task in plain]
        for name, short in CENTRALISED.items():
            yield kind, short, plain, [figure[name] for figure in figures]
        alone = [prepared_baselines(task, protocol.preparation)["local estimate alone"] for task in estimates]
        yield kind, "local estimate alone", plain, alone


def with_epochs(protocol, epochs):
    return protocol if epochs is None else replace(protocol, training=replace(protocol.training, epochs=epochs))


def rows_of(kind, method, tasks, values):
    places = [{name: task.details.get(name) for name in ("graph", "split")} | {"node": task.node} for task in tasks]
    ratio = len(tasks[0].test) / len(tasks[0].train)
    return [
        {"kind": kind, "method": method, "overlap": ratio, **place, "value": value}
        for place, value in zip(places, values, strict=True)
    ]


def table(rows, what, digits):
    """Means, spreads and paired differences as Markdown."""
    lines = [
        f"| | unseen {what} | `best` minus it | at random | `best` minus it | unseen minus random |",
        "|---|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = []
        for kind in ("unseen", "random"):
            found = choose(rows, kind=kind, method=method)
            values = torch.tensor([row["value"] for row in found], dtype=torch.float64)
            best = choose(rows, kind=kind, method=BEST)
            cells += [f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"]
            cells += ["" if method == BEST else paired(best, found, digits)]
        unseen, random = (choose(rows, kind=kind, method=method) for kind in ("unseen", "random"))
        lines.append(f"| {method} | {' | '.join(cells)} | {paired(unseen, random, digits)} |")
    return "\n".join(lines) + "\n"


def changes_of_lead(rows, digits):
    """Return how the preset's differences from other methods change between random and unseen samples."""
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows if row["method"] != BEST):
        unseen, random = (
            [
                {**ours, "value": ours["value"] - theirs["value"]}
                for ours, theirs in zip(
                    choose(rows, kind=kind, method=BEST), choose(rows, kind=kind, method=method), strict=True
                )
            ]
            for kind in ("unseen", "random")
        )
        lines.append(f"- `best` minus {method}, unseen minus random: {paired(unseen, random, digits)}")
    return "\n".join(lines) + "\n"


def paired(rows, others, digits):
    found = difference(rows, others, overlap=rows[0]["overlap"])
    text = f"{found.mean:+.{digits}f} ± {found.margin:.{digits}f}"
    return f"**{text}**" if found.is_certain else text


EXPERIMENTS = {"source-localization": (source_localization, "sources", 1), "denoising": (denoising, "days", 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", choices=tuple(EXPERIMENTS), help="only this one")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graphs", type=count, default=10)
    parser.add_argument("--source-splits", type=count, default=1, help="draws of held-out sources for each graph")
    parser.add_argument("--nodes", type=count, default=2)
    parser.add_argument("--epochs", type=count, help="of source localization; those of the preset otherwise")
    parser.add_argument("--splits", type=count, default=10, help="draws of held-out days")
    parser.add_argument("--denoising-epochs", type=count, help="of denoising; those of the preset otherwise")
    parser.add_argument("--data", type=Path, help="folder with molene/")
    parser.add_argument("--out", type=Path, help="write unseen-EXPERIMENT.json and .md here")
    options = parser.parse_args()
    chosen = [options.experiment] if options.experiment else list(EXPERIMENTS)
    if options.device == "cuda":
        need_cuda()
    if "denoising" in chosen:
        try:
            locate("molene", options.data)
        except DataError as error:
            sys.exit(str(error))
    for name in chosen:
        run, what, digits = EXPERIMENTS[name]
        rows, begun = [], time.perf_counter()
        for kind, method, tasks, values in run(options):
            rows += rows_of(kind, method, tasks, values)
            mean = sum(values) / len(values)
            echo(f"  {kind}, {method}: {mean:.{digits}f} ({time.perf_counter() - begun:.0f} s)")
        found = table(rows, what, digits) + "\n" + changes_of_lead(rows, digits)
        echo("\n" + found)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"unseen-{name}.md").write_text(found)
            (options.out / f"unseen-{name}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
