"""Perturbed graphs and features, and the accuracy that trained networks keep on them."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphact._extras import require
from graphact.graph import Graph
from graphact_lab.classifiers.node_classifier import data_of, make_network, on_device, train_trials
from graphact_lab.classifiers.stacked_layers import NodeGraph
from graphact_lab.data.node_sets import NodeData
from graphact_lab.fleets.features import SparseFeatures
from graphact_lab.protocols import TrainingJob, run_seed
from graphact_lab.selection import TrainingTrial, grid, network_row
from graphact_lab.splits import data_generator

PRESENT = 0.5  # the weight from which on an edge of a relaxed graph is a neighbour


class Relaxed(nn.Module):
    """A network as PRBCD calls it: on edges with weights between 0 and 1, through which gradients flow.

    What reads the pattern of the graph, such as a maximum over neighbours, sees the edges that are rather there than
    not; shifts see all of them with their weights. On a graph with weights of 1 it is the network itself.
    """

    def __init__(self, network: nn.Module, x: Tensor | SparseFeatures) -> None:
        super().__init__()
        self.network, self.x = network, x

    def forward(self, _: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        count = self.x.size(0)
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=count).normalize("gcn")
        if edge_weight is None:
            return self.network(self.x, NodeGraph(graph, graph))
        there = edge_weight.detach() > PRESENT
        pattern = Graph.from_edge_index(edge_index[:, there], edge_weight[there], num_nodes=count).normalize("gcn")
        return self.network(self.x, NodeGraph(graph, pattern))


def attack(
    network: nn.Module, x: Tensor | SparseFeatures, edge_index: Tensor, labels: Tensor, nodes: Tensor, budget: int,
    *, seed: int, steps: int, block: int,
) -> Tensor:  # fmt: skip
    """The edges after a global PRBCD attack (Geisler et al. 2021) on the predictions of some nodes.

    Args:
        network: the network that is attacked, with access to all of it.
        x, edge_index, labels: the clean data; every edge in both directions.
        nodes: the nodes whose predictions the attack tries to change.
        budget: undirected edges that may be added or removed.
        seed: decides what is random.
        steps: gradient steps; four fifths of them draw new candidates.
        block: candidates at a time.
    """
    require("graphact-lab run robustness needs", "torch_geometric")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*contrib.* contains experimental code")
        from torch_geometric.contrib.nn import PRBCDAttack

    relaxed = Relaxed(network, x).eval()
    for parameter in relaxed.parameters():
        parameter.requires_grad_(False)
    devices = [edge_index.device] if edge_index.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        attacker = PRBCDAttack(relaxed, max(block, 2 * budget), steps, 4 * steps // 5, loss="tanh_margin", log=False)
        shape = torch.empty(len(labels), 0, device=edge_index.device)  # PRBCD asks features for nodes and device alone
        attacked: Tensor
        attacked, flipped = attacker.attack(shape, edge_index, labels, budget, nodes)
    if flipped.size(1) > budget:
        raise RuntimeError(f"an attack must flip at most {budget} edges, got {flipped.size(1)}")
    return attacked


def random_edges(edge_index: Tensor, num_nodes: int, count: int, generator: torch.Generator) -> Tensor:
    """Remove half of ``count`` undirected edges and add the other half between nodes that share none, at random."""
    upper = edge_index[:, edge_index[0] < edge_index[1]]
    kept = upper[:, torch.randperm(upper.size(1), generator=generator)[count // 2 :].sort().values]
    known = set((upper[0] * num_nodes + upper[1]).tolist())
    added: dict[int, None] = {}
    while len(added) < count - count // 2:
        ends = torch.randint(num_nodes, (2, 1024), generator=generator).sort(0).values
        for key, low, high in zip((ends[0] * num_nodes + ends[1]).tolist(), *ends.tolist(), strict=True):
            if low != high and key not in known and len(added) < count - count // 2:
                added[key] = None
    keys = torch.tensor(list(added), dtype=torch.int64)
    one_way = torch.cat([kept, torch.stack([keys // num_nodes, keys % num_nodes])], 1)
    return torch.cat([one_way, one_way.flip(0)], 1)


def random_words(x: SparseFeatures, share: float, generator: torch.Generator) -> SparseFeatures:
    """Replace a share of the words of all documents by others, each with the weight of the one that it replaces."""
    matrix = x.matrix.cpu()
    rows = torch.arange(x.size(0)).repeat_interleave(matrix.crow_indices().diff())
    cols = matrix.col_indices().long().clone()
    changed = torch.rand(cols.numel(), generator=generator) < share
    cols[changed] = torch.randint(x.size(1), (int(changed.sum()),), generator=generator)
    shape = (x.size(0), x.size(1))
    keys, place = (rows * x.size(1) + cols).unique(return_inverse=True)  # words that meet add up
    values = torch.zeros(len(keys), dtype=matrix.dtype).index_add(0, place, matrix.values())
    return SparseFeatures.from_entries(keys // x.size(1), keys % x.size(1), values, shape)


def edges_of(data: NodeData) -> Tensor:
    """The edges of a data set, in both directions."""
    return data.graph.to_edge_index()[0]


@torch.no_grad()
def accuracy(
    network: nn.Module, x: Tensor | SparseFeatures, edge_index: Tensor, labels: Tensor, nodes: Tensor
) -> float:
    """The share of nodes with the right class, in percent."""
    logits = Relaxed(network, x).eval()(x, edge_index)
    return 100 * (logits[nodes].argmax(-1) == labels[nodes]).double().mean().item()


def trained(job: TrainingJob, device: str, directory: Path | None) -> list[Any]:
    """The networks of a job, at their best epochs, with the validation score and epoch of each."""
    (point,) = grid(job.protocol.rates, job.protocol.decays, job.protocol.dropouts)
    trials = [TrainingTrial(point, split) for split in range(job.protocol.splits)]
    result, fleets = train_trials(job, trials, device, directory, keep=True)
    models = [fleet.model(number) for fleet in fleets for number in range(len(fleet))]
    return list(zip(models, result.validation, result.best_epoch, strict=True))


Attacked = dict[tuple[int, int], Tensor]  # edges by split and share
_surrogates: dict[str, Attacked] = {}


def attacks_on(job: TrainingJob, models: list[Any], device: str, directory: Path | None) -> Attacked:
    """The attacked edges of each model."""
    return {
        (split, share): own_attack(job, model, split, share, device, directory)
        for split, (model, _, _) in enumerate(models)
        for share in job.protocol.task_options["shares"]
    }


def surrogate_attacks(job: TrainingJob, device: str, directory: Path | None) -> Attacked:
    """Those of further ReLU networks on the same splits, found once in a process; all networks meet them, ReLU's too.

    Their seed is another one, so that every network, whatever its activation, meets two attacks: its own, and one that
    was made for another network.
    """
    seed = run_seed("surrogate", job.seed) >> 32
    relu = TrainingJob(job.protocol, "relu", None, job.features, job.order, seed, job.condition)
    if relu.key not in _surrogates:
        _surrogates.clear()
        _surrogates[relu.key] = attacks_on(relu, trained(relu, device, directory), device, directory)
    return _surrogates[relu.key]


def own_attack(
    job: TrainingJob, model: nn.Module, split: int, share: int, device: str, directory: Path | None
) -> Tensor:  # fmt: skip
    """The edges after an attack on one model."""
    data, options = data_of(job, directory), job.protocol.task_options
    x, _ = on_device(data, "gcn", device)
    edge_index, nodes = edges_of(data).to(device), data.split(split).test.to(device)
    budget = edge_index.size(1) // 2 * share // 100
    limits = {"steps": int(options["steps"]), "block": int(options["block"])}
    seed = run_seed("attack", job.seed, split, share)
    return attack(model, x, edge_index, data.y.to(device), nodes, budget, seed=seed, **limits)


def train_cell(job: TrainingJob, device: str, directory: Path | None) -> list[dict[str, Any]]:
    """Train one activation on all splits and perturb what it reads: a row for each split and perturbation."""
    data = data_of(job, directory)
    if not isinstance(data.x, SparseFeatures):
        raise ValueError(f"robustness needs a data set whose features are words, got {data.name}")
    transferred = surrogate_attacks(job, device, directory)
    models = trained(job, device, directory)
    attacked = attacks_on(job, models, device, directory)
    common = network_row(make_network(job, data, 0), "accuracy")
    x, labels, edges = data.x.to(device, torch.float32), data.y.to(device), edges_of(data)
    rows: list[dict[str, Any]] = []
    for split, (model, validation, best_epoch) in enumerate(models):
        nodes = data.split(split).test.to(device)
        row = {**common, "split": split, "validation": validation, "best_epoch": best_epoch}

        def note(name: str, value: float, row: dict[str, Any] = row, **further: float) -> None:
            rows.append({**row, "condition": {"perturbation": name}, "value": value, **further})

        note("none", accuracy(model, x, edges.to(device), labels, nodes))
        for share in job.protocol.task_options["shares"]:
            own = accuracy(model, x, attacked[split, share], labels, nodes)
            moved = accuracy(model, x, transferred[split, share], labels, nodes)
            note(f"attack {share} %", min(own, moved), own_attack=own, transferred_attack=moved)
            generator = data_generator(f"robustness {data.name}", job.seed, split, share)
            noisy = random_edges(edges, len(labels), edges.size(1) // 2 * share // 100, generator)
            note(f"edges {share} %", accuracy(model, x, noisy.to(device), labels, nodes))
            words = random_words(data.x, share / 100, generator).to(device, torch.float32)
            note(f"words {share} %", accuracy(model, words, edges.to(device), labels, nodes))
    return rows
