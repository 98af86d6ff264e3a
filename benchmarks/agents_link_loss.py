"""The paper's figure of consensus under link loss, made by agents and in one place.

Trains networks for the consensus task (N = 100), then loses every link with probability p for a whole inference, in
both directions: once in the simulated network of the agents, once by `Graph.drop_edges`. Prints the RMSE of both and
the p-value of the two-sample Kolmogorov-Smirnov test that the errors of the draws have one distribution; writes a table
and a figure.

    python benchmarks/agents_link_loss.py --out out/agents-link-loss
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from agent_files import deploy
from output import echo
from scipy.stats import ks_2samp

from graphact.nn import FIR, GCNN
from graphact.registry import COMPARED, POINTWISE
from graphact.training import TrainingSettings, fit
from graphact_agents import Faults, Timing, simulate_inference
from graphact_lab.tasks import consensus

LOSSES = (0.025, 0.05, 0.075, 0.1, 0.125, 0.15)


def train(name, task, options):
    torch.manual_seed(0)
    features = [1, options.features, options.features]
    model = (
        FIR(features, order=options.order)
        if name == "fir"
        else GCNN(features, order=options.order, activation=name, hops=1, start="uniform")
    ).double()
    fit(model, task, TrainingSettings(epochs=options.epochs, learning_rate=0.005))
    return model


def rmse(outputs, targets):
    return np.sqrt(np.square(outputs - targets).mean(tuple(range(1, outputs.ndim))))


def by_agents(model, task, x, y, p, seed, options):
    stream = np.repeat(x[np.newaxis], options.draws, 0)
    timing = Timing(slot=0.05, request_after=0.04)
    answer = simulate_inference(deploy(model, task.graph), stream, faults=Faults(link_loss=p), timing=timing, seed=seed)
    return rmse(answer.outputs, y)


def in_one_place(model, task, x, y, p, seed, options):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        draws = [
            model(torch.from_numpy(x), task.graph.drop_edges(p, generator=generator)).numpy()
            for _ in range(10 * options.draws)
        ]
    return rmse(np.stack(draws), y)


def draw(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for number, name in enumerate(dict.fromkeys(row[0] for row in rows)):
        mine = [row for row in rows if row[0] == name]
        axes.plot([row[1] for row in mine], [row[3] for row in mine], color=f"C{number}", label=f"{name}, one place")
        axes.plot([row[1] for row in mine], [row[2] for row in mine], "o", color=f"C{number}", label=f"{name}, agents")
    axes.set(xlabel="probability that a link is lost", ylabel="RMSE")
    axes.legend(fontsize=7, ncol=2)
    figure.savefig(path, dpi=150, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/agents-link-loss"))
    parser.add_argument("--methods", nargs="+", default=[*COMPARED, *POINTWISE, "fir"])
    parser.add_argument("--features", type=int, default=4)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--signals", type=int, default=20)
    options = parser.parse_args()
    task = consensus(dtype=torch.float64)
    chosen = task.test[: options.signals]
    x, y = task.inputs[chosen].numpy(), task.targets[chosen].numpy()
    rows = []
    echo("method      loss    agents  one place  KS p-value  seconds")
    for name in options.methods:
        model = train(name, task, options)
        for p in LOSSES:
            begun = time.perf_counter()
            settings = (model, task, x, y, p, len(rows), options)
            agents, central = by_agents(*settings), in_one_place(*settings)
            same = ks_2samp(agents, central).pvalue
            rows.append((name, p, agents.mean(), central.mean(), same))
            seconds = time.perf_counter() - begun
            echo(f"{name:10s} {p:5.3f} {agents.mean():9.4f} {central.mean():10.4f} {same:11.3f} {seconds:8.1f}")
    options.out.mkdir(parents=True, exist_ok=True)
    lines = [f"| {name} | {p} | {a:.4f} | {c:.4f} | {same:.3f} |" for name, p, a, c, same in rows]
    head = ["| method | loss | RMSE, agents | RMSE, one place | KS p-value |", "|---|---|---|---|---|"]
    (options.out / "table.md").write_text("\n".join([*head, *lines]) + "\n")
    draw(rows, options.out / "figure.png")


if __name__ == "__main__":
    main()
