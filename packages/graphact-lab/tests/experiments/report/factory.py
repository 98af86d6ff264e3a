"""Rows of results as a run of the experiments would leave them, with numbers like those of the real ones."""

import random
from itertools import product

VARIANTS = (
    ("relu", None),
    ("max-l", 1),
    ("max-ga", 1),
    ("max-ga", 2),
    ("median-l", 1),
    ("median-ga", 1),
    ("median-ga", 2),
    ("kernel-ga", 1),
)
ONE_HOP = tuple((method, hops) for method, hops in VARIANTS if hops in (None, 1))
ACCURACY = {"relu": 46.0, "max-l": 69.0, "max-ga": 70.0, "median-l": 65.5, "median-ga": 67.0, "kernel-ga": 57.0}
ERROR = {"relu": 5, "max-l": 3, "max-ga": 1, "median-l": 4, "median-ga": 2, "kernel-ga": 6, "fir": 9}
FILMS = {"toy-story": 0.97, "contact": 1.02, "return-of-the-jedi": 1.0}


def row(experiment="source-localization", method="relu", value=50.0, **changes):
    """One row; whatever is not said has a plain value."""
    metric = "accuracy" if experiment == "source-localization" else "rmse"
    made = {
        "experiment": experiment,
        "preset": "quick",
        "protocol": "paper",
        "kind": "model",
        "method": method,
        "hops": None,
        "features": 8,
        "order": 4,
        "condition": {"film": "toy-story"} if experiment == "recommendation" else {},
        "graph": 0,
        "split": 0,
        "node": None,
        "realization": None,
        "metric": metric,
        "value": value,
        "validation": None,
        "best_epoch": 30,
        "epochs": 40,
        "beta": None,
        "weights": None,
        "seed": 0,
        "graphact": "0.1.0",
        "torch": "2.13.0",
        "device": "cpu",
        "seconds": 1.5,
        "finished": "2026-11-15T10:00:00Z",
    }
    return made | changes


def baseline(experiment, method, value, **changes):
    """A row of a baseline."""
    bare = {"kind": "baseline", "features": None, "order": None, "epochs": None, "best_epoch": None}
    return row(experiment, method, value, **(bare | changes))


def learned(draw, method, hops, layers, features):
    """Weights as an activation with parameters has them after training."""
    if method in ("relu", "fir"):
        return {}
    return {
        "beta": [draw.gauss(0.9, 0.1) for _ in range(layers)],
        "weights": [
            [[draw.gauss(0.4 / hop, 0.1) for _ in range(features)] for hop in range(1, hops + 1)] for _ in range(layers)
        ],
    }


def source_localization(draw, graphs=2, splits=3, nodes=4):
    for protocol, loss in (("paper", 14.0), ("converged", 0.0)):
        shared = {"protocol": protocol}
        for (method, hops), features in product(VARIANTS, (2, 4, 8)):
            mean = ACCURACY[method] + {2: -5, 4: -1, 8: 3}[features] - loss * (method != "relu")
            for graph, split, node in product(range(graphs), range(splits), range(nodes)):
                place = {"graph": graph, "split": split, "node": node, "hops": hops, "features": features}
                weights = learned(draw, method, hops, 2, features)
                yield row(method=method, value=draw.gauss(mean, 8.0), **shared, **place, **weights)
        yield baseline("source-localization", "chance", 25.0, **shared)


def consensus(draw, graphs=2, splits=3):
    for (method, hops), order in product((*ONE_HOP, ("fir", None)), (20, 25, 30, 35)):
        mean = 0.0190 + 0.0004 * ERROR[method] * (1 if order == 20 else 0.5) - 0.00005 * (order - 20)
        for graph, split in product(range(graphs), range(splits)):
            place = {"hops": hops, "features": 32, "order": order, "graph": graph, "split": split}
            value = draw.gauss(mean, 0.0004)
            weights = learned(draw, method, hops, 2, 32)
            yield row("consensus", method, value, validation=value + 0.0001, **place, **weights)
            if order != 20:
                continue
            for level, realization in product((0.025, 0.05, 0.075, 0.1, 0.125, 0.15), range(3)):
                lost = {"condition": {"loss_probability": level}, "realization": realization}
                yield row("consensus", method, value + level * (0.05 + 0.012 * ERROR[method]), **place, **lost)
    for graph, split in product(range(graphs), range(splits)):
        place = {"graph": graph, "split": split}
        yield baseline("consensus", "answer zero", draw.gauss(0.1, 0.001), **place)
        for order in (20, 25, 30, 35):
            fitted = draw.gauss(0.0215 - 0.0001 * (order - 20), 0.0002)
            yield baseline("consensus", "least-squares FIR", fitted, order=order, **place)


def denoising(draw, splits=4):
    for (method, hops), features, order in product((*ONE_HOP, ("fir", None)), (1, 2, 4), (1, 2, 4, 8)):
        mean = 1.02 + 0.03 * ERROR[method] / order**0.5 - 0.02 * features
        for split in range(splits):
            place = {"hops": hops, "features": features, "order": order, "split": split, "graph": None}
            weights = learned(draw, method, hops, 1, features)
            value = draw.gauss(mean, 0.02)
            yield row("denoising", method, value, **place, **weights)
            if (order, features) == (1, 4):
                for snr in (0.0, 3.0, 6.0, 9.0, 12.0):
                    yield row("denoising", method, value * (1.3 - snr / 18), condition={"snr_db": snr}, **place)
    simple = {
        "leave the noise in": 2.07,
        "mean of the hour over stations + station offset": 1.13,
        "centralised linear least squares on all stations": 0.872,
        "centralised linear least squares on all stations, with a constant": 0.868,
    }
    for (name, value), split in product(simple.items(), range(splits)):
        for snr in (0.0, 3.0, 6.0, 9.0, 12.0):
            noisy = value * 10 ** ((3 - snr) / 20) if name.startswith("leave") else value * (1.15 - snr / 20)
            yield baseline("denoising", name, noisy, split=split, graph=None, condition={"snr_db": snr})


def recommendation(draw, splits=5):
    simple = {"mean of the training ratings": -0.05, "user's mean + offset": -0.08, "ridge regression": -0.12}
    for (film, level), split in product(FILMS.items(), range(splits)):
        place = {"condition": {"film": film}, "split": split, "graph": None}
        for method, hops in ONE_HOP:
            value = draw.gauss(level + 0.005 * ERROR[method], 0.05)
            weights = learned(draw, method, hops, 1, 32)
            yield row("recommendation", method, value, hops=hops, features=32, **place, **weights)
        for name, gain in simple.items():
            yield baseline("recommendation", name, draw.gauss(level + gain, 0.03), **place)


def every_experiment(seed=0):
    """Rows of all four experiments."""
    draw = random.Random(seed)
    parts = (source_localization(draw), consensus(draw), denoising(draw), recommendation(draw))
    return [made for part in parts for made in part]
