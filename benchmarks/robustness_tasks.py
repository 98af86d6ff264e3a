"""The two tasks of benchmarks/robustness.py: how their networks are trained, tuned below a limit, and perturbed."""

import copy
import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn

from graphact import Graph
from graphact.guarantees import lipschitz_bound, lipschitz_constrained, release
from graphact.guarantees.layers import read_layers
from graphact.guarantees.lipschitz import certified_norms
from graphact.nn import GCNN
from graphact.training import Fleet, TrainingSettings, fit
from graphact_lab.data.planetoid import read_planetoid
from graphact_lab.descriptions import find_experiment, find_protocol
from graphact_lab.protocols import TrainingJob
from graphact_lab.runner import make_models

LIMITS = (100.0, 1000.0, 10000.0, math.inf)  # the last is tuning alone
DONOR = "relu"  # its attacks are tried on all others


class Square(nn.Module):
    def forward(self, x):
        return x * x.abs()


class Root(nn.Module):
    def forward(self, x):
        return x.sign() * (x.abs() + 1e-12).sqrt()  # so that the gradient at 0 is large and not infinite


PLAIN = {"tanh": nn.Tanh, "square": Square, "root": Root}


@dataclass(frozen=True)
class Levels:
    gaussian: tuple[float, ...]
    attack: tuple[float, ...]  # and uniform noise
    limits: tuple[float, ...]


# Perturbations. A model is a function of signals; a verdict says which answers are right, per signal or as a whole.


def margin_of(outputs, targets):
    """By how much the best wrong class is ahead of the right one."""
    right = targets.unsqueeze(-1)
    return outputs.scatter(-1, right, -torch.inf).amax(-1) - outputs.gather(-1, right).squeeze(-1)


def cross_entropy(outputs, targets):
    return -outputs.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def ascend(answers, x, targets, radius, goal, start, steps, seen):
    """Projected gradient ascent in a box around x; `seen` gets the outputs and the signal of every step."""
    other = start
    for step in range(steps):
        other = other.detach().requires_grad_()
        outputs = answers(other)
        (gradient,) = torch.autograd.grad(goal(outputs, targets).sum(), other)
        seen(outputs.detach(), other.detach())
        size = radius * (0.5 if step < steps // 2 else 0.1)  # to the corners first, then more finely
        other = (other.detach() + size * gradient.sign()).clamp(x - radius, x + radius)
    with torch.no_grad():
        seen(answers(other), other)


def box_noise(x, generator):
    """A function of a radius that draws uniform noise; on the CPU, so that all devices have the same."""
    return lambda radius: radius * (2 * torch.rand(x.shape, generator=generator) - 1).to(x)


class SourceLocalization:
    """Ten graphs, one network each, evaluated together by a fleet; the signals of the test set one by one."""

    name = "source-localization"
    levels = Levels((0.01, 0.03, 0.1, 0.3), (0.0003, 0.001, 0.003, 0.01, 0.03), LIMITS)

    def __init__(self, effort, options):
        self.effort, self.device = effort, options.device
        protocol = find_protocol(self.name, "paper", "converged")
        self.protocol = replace(protocol, graphs=effort.units, splits=1, nodes=1)
        self.settings = replace(protocol.training, epochs=effort.epochs or protocol.training.epochs)
        self.tasks = find_experiment(self.name).make_tasks(self.protocol, {}, 0, None)
        self.seeds, self.donated = list(range(effort.units)), None

    def train(self, activation):
        """The networks of one activation, trained as the protocol says."""
        job = TrainingJob(self.protocol, DONOR if activation in PLAIN else activation, 1, 8, 4, seed=0)
        models, tasks = make_models(job, self.tasks), self.tasks
        if activation in PLAIN:
            models = [DenseNetwork(model, PLAIN[activation](), task) for model, task in zip(models, tasks, strict=True)]
        self.fleet_of(models).train(self.settings)
        return models

    def fleet_of(self, models):
        tasks = self.tasks
        if isinstance(models[0], DenseNetwork):  # they hold their graphs themselves
            tasks = [replace(task, graph=tasks[0].graph) for task in tasks]
        return Fleet(models, tasks, self.seeds, device=self.device)

    def tune(self, model, unit, limit):
        """A network below a limit; the last epoch counts, since the first ones still are what it was."""
        task = self.tasks[unit].to(self.device)
        task = replace(task, validation=task.validation[:0])
        settings = TrainingSettings(epochs=self.effort.tuning, batch_size=240, learning_rate=2e-2, schedule="cosine")
        model = below(model.to(self.device), task.graph, limit, lambda: lipschitz_bound(model, task.graph).value)
        fit(model, task, settings, seed=unit)
        return release(model).cpu()

    def constants(self, models):
        """Certified constants of the networks, and of the node that each is read at."""
        bounds = [lipschitz_bound(model, task.graph) for model, task in zip(models, self.tasks, strict=True)]
        return [(bound.value, bound.per_node[task.node].item()) for bound, task in zip(bounds, self.tasks, strict=True)]

    def measure(self, models, donors):
        """Accuracies of all networks at all levels, rows by unit."""
        fleet, levels, effort = self.fleet_of(models), self.levels, self.effort
        samples = fleet.data.splits["test"]
        x, targets = fleet.data.signals(samples), fleet.data.targets_of(samples)
        rms = x.square().mean((-2, -1), keepdim=True).sqrt()
        generator = torch.Generator().manual_seed(0)
        noise, noise_of_donor = box_noise(x, generator), box_noise(x, torch.Generator().manual_seed(1))

        def right(signals):
            with torch.no_grad():
                return fleet.forward(signals).argmax(-1) == targets

        clean = right(x)
        gaussian = [
            sum(
                right(x + level * rms * torch.randn(x.shape, generator=generator).to(x)).double()
                for _ in range(effort.draws)
            )
            / effort.draws
            for level in levels.gaussian
        ]
        if self.donated is None:
            donor = self.fleet_of(donors)
            radii = [level * rms for level in levels.attack]
            self.donated = [self.attacked(donor, x, targets, radius, noise_of_donor)[1] for radius in radii]
        uniform, attack, transfer = [], [], [right(signals) for signals in self.donated]
        for level in levels.attack:
            radius = level * rms
            uniform.append(torch.stack([right(x + noise(radius)) for _ in range(effort.draws)]).all(0))
            attack.append(self.attacked(fleet, x, targets, radius, noise)[0])

        def percent(rights):
            return [(100 * each.double().mean(1)).tolist() for each in rights]

        with torch.no_grad():
            margins = -margin_of(fleet.forward(x), targets).double() / 2
        reach = margins / rms.flatten(1).double()
        columns = {"gaussian": gaussian, "uniform": uniform, "attack": attack, "transfer": transfer}
        columns = {
            name: [list(unit) for unit in zip(*percent(rights), strict=True)] for name, rights in columns.items()
        }
        columns["accuracy"] = percent([clean])[0]
        return columns, reach

    def attacked(self, fleet, x, targets, radius, noise):
        """Return the answers that stay right under every attempt, and the worst signals that were found."""
        kept = torch.ones_like(targets, dtype=torch.bool)
        worst, signals = torch.full_like(x[..., 0, 0], -torch.inf), x

        def seen(outputs, other):
            nonlocal kept, worst, signals
            margin = margin_of(outputs, targets)
            kept = kept & (outputs.argmax(-1) == targets)
            signals = torch.where((margin > worst)[..., None, None], other, signals)
            worst = worst.maximum(margin)

        for restart in range(self.effort.restarts):
            start = x if restart == 0 else x + noise(radius)
            goal = cross_entropy if restart == 2 else margin_of
            ascend(fleet.forward, x, targets, radius, goal, start, self.effort.steps, seen)
        return kept, signals


class DenseNetwork(nn.Module):
    """A GCNN of two layers with a function of single values, which holds the powers of its graph, read at one node.

    It has only products of matrices, of which torch.vmap makes one for all networks of a fleet.
    """

    def __init__(self, network, function, task):
        super().__init__()
        self.taps = nn.ParameterList(nn.Parameter(bank.taps.detach().clone()) for bank in network.filters)
        self.biases = nn.ParameterList(nn.Parameter(bank.bias.detach().clone()) for bank in network.filters)
        self.readout, self.function = network.readout, function
        dense, order = task.graph.to_dense().double(), self.taps[0].size(0) - 1
        powers = torch.stack([torch.linalg.matrix_power(dense, k) for k in range(order + 1)])
        powers = powers.permute(2, 1, 0).to(task.inputs.dtype)  # (N, N, K + 1), the second for the node that reads
        self.register_buffer("everywhere", powers.flatten(1).contiguous())
        self.register_buffer("at_node", powers[:, task.node].contiguous())

    def forward(self, x, _graph):
        count, nodes, _ = x.shape
        for taps, bias, powers in zip(self.taps, self.biases, (self.everywhere, self.at_node), strict=True):
            order, features, _ = taps.shape
            shifted = (x.transpose(1, 2).reshape(-1, nodes) @ powers).view(count, features, -1, order)
            shifted = shifted.permute(0, 2, 3, 1).reshape(-1, order * features)
            x = self.function(shifted @ taps.flatten(0, 1) + bias).view(count, -1, taps.size(2))
        outputs = x.squeeze(1) @ self.readout.weight.T + self.readout.bias
        return outputs.unsqueeze(1).expand(-1, nodes, -1)  # every node says what that node says


class Cora:
    """One graph and one signal, the features of all papers; ten seeds."""

    name = "cora"
    levels = Levels((1.0, 3.0, 10.0), (0.01, 0.03, 0.1), LIMITS)

    def __init__(self, effort, options):
        self.effort, self.device, self.folder = effort, options.device, options.data
        self.epochs, self.seeds, self.donated = effort.epochs or 100, list(range(effort.units)), {}

    @cached_property
    def data(self):
        return read_planetoid("cora", self.folder)

    @cached_property
    def graph(self):
        return Graph.from_edge_index(self.data.edge_index, num_nodes=len(self.data.x)).normalize("symmetric")

    def train(self, activation):
        models = []
        for seed in self.seeds:
            torch.manual_seed(seed)
            function = PLAIN[activation]() if activation in PLAIN else activation
            model = GCNN([1433, 16, 16], order=1, activation=function, out_features=self.data.num_classes)
            models.append(self.descend(model, self.epochs, choose=True))
        return models

    def descend(self, model, epochs, *, choose):
        """Train with all samples at once; nothing is random, so a forward pass serves training and validation."""
        x, y, graph = self.data.x.to(self.device), self.data.y.to(self.device), self.graph.to(self.device)
        train, validation = (part.to(self.device) for part in self.data.split[:2])
        model, best, kept = model.to(self.device), -1.0, None
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for _ in range(epochs + 1):
            outputs = model(x, graph)
            reached = (outputs[validation].argmax(-1) == y[validation]).double().mean().item()
            if choose and reached > best:
                best, kept = reached, copy.deepcopy(model.state_dict())
            optimizer.zero_grad()
            nn.functional.cross_entropy(outputs[train], y[train]).backward()
            optimizer.step()
        if choose:
            model.load_state_dict(kept)
        return model.cpu()

    def tune(self, model, _unit, limit):
        graph = self.graph
        model = below(model, graph, limit, lambda: self.norms(model).max().item())
        return release(self.descend(model, 2 * self.effort.tuning, choose=False))

    @torch.no_grad()
    def norms(self, model):
        return certified_norms(*read_layers(model), self.graph.to(dtype=torch.float64))

    def constants(self, models):
        """Of the networks, and of every test node."""
        test = self.data.split[2]
        norms = [self.norms(model).amax(-1) for model in models]
        return [(each.max().item(), each[test]) for each in norms]

    def measure(self, models, donors):
        rows = [self.measure_one(*each) for each in zip(self.seeds, models, donors, strict=True)]
        reaches = [row.pop("reach") for row in rows]
        return {name: [row[name] for row in rows] for name in rows[0]}, reaches

    def measure_one(self, seed, model, donor):
        x, test = self.data.x.to(self.device), self.data.split[2].to(self.device)
        graph, targets = self.graph.to(self.device), self.data.y.to(self.device)[test]
        rms, generator = x.square().mean().sqrt().item(), torch.Generator().manual_seed(seed)
        noise, noise_of_donor = box_noise(x, generator), box_noise(x, torch.Generator().manual_seed(100 + seed))
        for each in (model, donor):
            each.to(self.device).requires_grad_(False)

        def accuracy(outputs):
            return 100 * (outputs.argmax(-1) == targets).double().mean().item()

        def answers(signal):
            return model(signal, graph)[test]

        def gaussian(size):
            return size * torch.randn(x.shape, generator=generator).to(x)

        row = {"accuracy": accuracy(answers(x)), "gaussian": [], "uniform": [], "attack": [], "transfer": []}
        for level in self.levels.gaussian:
            row["gaussian"].append(sum(accuracy(answers(x + gaussian(level * rms))) for _ in range(2)) / 2)
        for level in self.levels.attack:
            radius = level * rms
            row["uniform"].append(min(accuracy(answers(x + noise(radius))) for _ in range(2)))
            row["attack"].append(self.attacked(answers, x, targets, radius, noise)[0])
            if level == self.levels.attack[1]:  # a signal is as large as the features of Cora
                if seed not in self.donated:
                    theirs = lambda signal: donor(signal, graph)[test]  # noqa: E731
                    self.donated[seed] = self.attacked(theirs, x, targets, radius, noise_of_donor)[1] - x
                row["transfer"].append(accuracy(answers(x + self.donated[seed])))
        row["reach"] = (-margin_of(answers(x), targets).double() / 2 / rms).cpu()
        for each in (model, donor):
            each.cpu().requires_grad_(True)
        return row

    def attacked(self, answers, x, targets, radius, noise, restarts=2):
        """The lowest accuracy of any signal that was tried, and that signal."""
        lowest, signal = math.inf, x

        def seen(outputs, other):
            nonlocal lowest, signal
            accuracy = 100 * (outputs.argmax(-1) == targets).double().mean().item()
            if accuracy < lowest:
                lowest, signal = accuracy, other

        with torch.no_grad():
            scale = margin_of(answers(x), targets).abs().median()
        # nodes that are lost or safe pull little, those near the border most; then all that are still right
        goals = (
            lambda outputs, targets: (margin_of(outputs, targets) / scale).tanh(),
            lambda outputs, targets: cross_entropy(outputs, targets) * (outputs.argmax(-1) == targets),
        )
        for restart in range(min(restarts, self.effort.restarts)):
            start = x if restart == 0 else x + noise(radius)
            ascend(answers, x, targets, radius, goals[restart], start, 2 * self.effort.steps // 5, seen)
        return lowest, signal


def below(model, graph, limit, constant):
    """A trained classifier with a limit. Its last bias shrinks as its weights do, so that all decisions stay."""
    if math.isinf(limit):
        return model
    with torch.no_grad():
        model.readout.bias.mul_(min(1.0, limit / constant()))
    return lipschitz_constrained(model, graph, limit)
