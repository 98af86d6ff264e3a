"""Learning without a centre: how near agents come to what one place learns.

    python benchmarks/agents_learning.py convergence   distance to the optimum of a least-squares problem (a minute)
    python benchmarks/agents_learning.py molene        the Molène denoiser on 32 agents, against the centralised one

All agents run in the simulator, on the real node code; the faults are those of the network.
"""

import argparse
import copy
import time

import numpy as np
import torch
from agent_files import deploy
from output import echo

from graphact import Graph, nn
from graphact_agents import Faults, Timing
from graphact_agents.learning import Learning, simulate_training
from graphact_agents.learning.learner import samples_of
from graphact_lab.tasks import denoising, metric_of

NO_TIME_TO_REPEAT = Timing(
    slot=0.0015
)  # a datagram travels for 1 ms and is asked for after 20 ms: what is lost is lost


def least_squares(num_nodes=12):
    """A filter of order 1 and a bias, fitted to targets on which no two nodes agree."""
    rng = np.random.default_rng(0)
    graph = Graph.nearest_neighbors(torch.from_numpy(rng.random((num_nodes, 2))), 4).normalize("spectral")
    x = rng.normal(size=(10, num_nodes, 1))
    shifted = graph.to_dense().numpy() @ x
    targets = 2 * x - shifted + 1 + rng.normal(size=x.shape) * rng.uniform(1, 4, (1, num_nodes, 1))
    design = np.stack([x.ravel(), shifted.ravel(), np.ones(x.size)], axis=1)
    optimum = np.linalg.lstsq(design, targets.ravel(), rcond=None)[0]
    steepest = np.linalg.eigvalsh(2 * design.T @ design / len(design))[-1]
    return graph, nn.FIR([1, 1], order=1, out_features=None, bias=True).double(), x, targets, optimum, steepest


def convergence(options):
    """Distance of the worst node from the optimum, and how far nodes are from each other."""
    graph, model, x, targets, optimum, steepest = least_squares()
    faults = {
        "no loss": Faults(),
        "30 % of links, both ways": Faults(link_loss=0.3),
        "10 % one way": Faults(loss=0.1),
        "30 % one way": Faults(loss=0.3),
        "30 % one way, crashes": Faults(loss=0.3, crash=0.02, downtime=0.01),
    }
    echo(f"{options.steps} steps, {graph.num_nodes} nodes: distance to the optimum / to the mean of the copies")
    for name, fault in faults.items():
        learning, nodes = Learning("sgd", 0.4 / steepest), deploy(model, graph)
        result = simulate_training(
            nodes, x, targets, learning, steps=options.steps, faults=fault, timing=NO_TIME_TO_REPEAT
        )
        distance = abs(result.copies - optimum).max()
        echo(f"{name:28s}{distance:9.1e} /{result.disagreement:9.1e}")


def train_centrally(model, graph, signals, targets, learning, steps):
    """Train a model in one place with Adam and the batches of ``learning``."""
    x, t = torch.from_numpy(signals), torch.from_numpy(targets)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning.rate)
    for step in range(steps):
        batch = samples_of(step, len(signals), learning)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x[batch], graph), t[batch]).backward()
        optimizer.step()


def molene(options):
    """Test error of the network that agents trained, and of the one trained in one place by the same optimizer."""
    task = denoising(options.split, dtype=torch.float64)
    x, targets = task.inputs[task.train].numpy(), task.targets[task.train].numpy()
    torch.manual_seed(options.split)
    first = nn.GCNN([1, 4], order=1, activation=options.activation, hops=1, out_features=1, start="uniform").double()

    def error(model):
        with torch.no_grad():
            return metric_of("rmse", model(task.inputs[task.test], task.graph), task.targets[task.test]).item()

    central = copy.deepcopy(first)
    learning = Learning(rate=options.rate, batch=100)
    train_centrally(central, task.graph, x, targets, learning, options.steps)
    best = error(central)
    echo(f"{options.activation}, {options.steps} steps of {learning.batch}, Adam {options.rate:g}, {x.shape[1]} agents")
    echo(f"{'in one place':12s}{best:.4f} K")
    for loss in options.loss:
        begun = time.monotonic()
        nodes = deploy(first, task.graph)
        result = simulate_training(nodes, x, targets, learning, steps=options.steps, faults=Faults(loss=loss))
        model = copy.deepcopy(first)
        parameters = result.model(nodes[0].model).parameters
        model.load_state_dict({name: torch.from_numpy(value) for name, value in parameters.items()})
        off, seconds = error(model) / best - 1, time.monotonic() - begun
        counters = result.counters
        missed = counters.links_missed / (counters.links_missed + counters.links_used)
        echo(
            f"loss {loss:4.0%}   {error(model):.4f} K ({off:+.2%}), copies differ by "
            f"{result.disagreement:.1e}, links missed {missed:.1e}, {seconds:.0f} s"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("convergence")
    part.add_argument("--steps", type=int, default=1000)
    part.set_defaults(call=convergence)
    part = parts.add_parser("molene")
    part.add_argument("--steps", type=int, default=300)
    part.add_argument("--rate", type=float, default=0.01)
    part.add_argument("--split", type=int, default=0)
    part.add_argument("--activation", default="max-ga")
    part.add_argument("--loss", type=float, nargs="+", default=[0.0, 0.3])
    part.set_defaults(call=molene)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
