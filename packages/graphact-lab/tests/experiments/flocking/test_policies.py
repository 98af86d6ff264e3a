"""Policies as a fleet: each answers as its module alone, and learns as if it were alone; messages that take a step."""

import pytest
import torch

from graphact.graph import Graph
from graphact.nn import FIR, GCNN, GraphModule
from graphact.spec import UnsupportedModelError
from graphact.training.randomness import scramble
from graphact_lab.experiments.flocking.flight import Conditions, fly
from graphact_lab.experiments.flocking.imitation import Imitation, teams_for, uniform
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.team_graphs import graph_of
from graphact_lab.experiments.flocking.world import Teams, World, adjacency_of, draw_teams, pairs_of

AGENTS = 10
METHODS = ("relu", "tanh", "maxout", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga", "mean-ga")
METHODS += ("soft-maximum-ga", "trimmed-mean-ga", "weighted-mean-ga", "mixture-ga", "fir")
TINY = Imitation(agents=6, teams=4, validation=2, epochs=2, batch=2, rate=1e-2, flown_again=2, parts=5)
SHORT = World(steps=10)


def policy(method: str, hops: int = 1, seed: int = 0) -> GraphModule:
    torch.manual_seed(seed)
    if method == "fir":
        return FIR([6, 5], order=2, out_features=2, bias=True).double()
    shape = {"order": 2, "out_features": 2, "bias": True, "gamma": 1.0, "learn_gamma": True, "start": "uniform"}
    return GCNN([6, 5], activation=method, hops=hops, **shape).double()


def links(count: int, seed: int = 0) -> torch.Tensor:
    return adjacency_of(pairs_of(draw_teams(count, AGENTS, torch.Generator().manual_seed(seed)).position), 2.0)


def test_the_graph_is_the_one_that_edges_give() -> None:
    adjacency = links(4)
    adjacency[1] = False  # nobody hears anybody
    adjacency[2, 0] = False  # a link in one direction only
    blocks = [one.double() / one.sum(-1, keepdim=True).clamp_min(1) for one in adjacency]
    expected, made = Graph.from_dense(torch.block_diag(*blocks)), graph_of(adjacency, dtype=torch.float64)
    for name in ("weight", "outgoing_weight", "incoming_slot"):
        assert torch.equal(getattr(made, name), getattr(expected, name))
    for side in ("incoming", "outgoing"):
        ours, theirs = getattr(made, side), getattr(expected, side)
        assert ours.groups == theirs.groups
        for name in ("rowptr", "col", "order", "sizes"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name))


def test_with_delay_the_graph_leads_from_step_to_step() -> None:
    adjacency = links(6).view(2, 3, AGENTS, AGENTS).clone()
    adjacency[0, 1, 0] = False
    matrix = torch.zeros(6 * AGENTS, 6 * AGENTS, dtype=torch.float64)
    for team in range(2):
        for step in (1, 2):
            to, start = (team * 3 + step) * AGENTS, (team * 3 + step - 1) * AGENTS
            block = adjacency[team, step].double()
            matrix[to : to + AGENTS, start : start + AGENTS] = block / block.sum(-1, keepdim=True).clamp_min(1)
    expected, made = Graph.from_dense(matrix), graph_of(adjacency, delayed=True, dtype=torch.float64)
    assert torch.equal(made.to_dense(), matrix)
    assert torch.equal(made.incoming_slot, expected.incoming_slot)
    assert torch.equal(made.outgoing_weight, expected.outgoing_weight)
    assert torch.equal(made.outgoing.col, expected.outgoing.col)


HOPS = [(method, hops) for method in METHODS for hops in ((1, 2) if method.endswith(("-l", "-ga")) else (1,))]


@pytest.mark.parametrize(("method", "hops"), HOPS)
def test_policies_answer_and_learn_as_their_modules(method: str, hops: int) -> None:
    models, adjacency = [policy(method, hops, seed) for seed in (1, 2)], links(6)
    x = torch.randn(2, 3 * AGENTS, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    fleet = Policies(models, dtype=torch.float64)
    together = fleet(x, graph_of(adjacency, dtype=torch.float64))
    together.sin().sum().backward()
    for number, model in enumerate(models):
        alone = model(x[number], graph_of(adjacency[3 * number : 3 * number + 3], dtype=torch.float64))
        assert torch.allclose(together[number], alone, atol=1e-12)
        alone.sin().sum().backward()
        arrays = [array for layer in fleet.described[number] for array in layer.arrays().values()]
        for array, stacked in zip(arrays, fleet.parameters, strict=True):
            assert torch.allclose(array.grad, stacked.grad[number], atol=1e-10)


def test_what_cannot_fly_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="layer 1"):
        Policies([GCNN([6, 4], activation="max-k", out_features=2)])


@pytest.mark.parametrize("method", ["relu", "max-ga", "median-ga"])
def test_with_delay_agents_know_what_is_k_hops_away_as_it_was_k_steps_ago(method: str) -> None:
    """Against a memory of messages: every exchange carries what the neighbour had at the step before."""
    model = policy(method)
    start = draw_teams(1, AGENTS, torch.Generator().manual_seed(2))
    seen = []
    fleet = Policies([model], dtype=torch.float64)
    fly(Teams(*(part.unsqueeze(0) for part in start)), fleet, SHORT, delayed=True, watch=seen.append)
    bank, activation, readout = model.layers()
    taps, memory = bank.taps.detach(), [torch.zeros(AGENTS, 6, dtype=torch.float64)] * 2
    kept = [torch.zeros(AGENTS, 5, dtype=torch.float64)] * 2  # z and S z as they were sent a step ago
    for moment in seen:
        adjacency = moment.adjacency[0, 0]
        mean = adjacency.double() / adjacency.sum(-1, keepdim=True).clamp_min(1)
        adjacency = adjacency & (moment.step > 0)  # nothing is under way at first
        mean = mean * (moment.step > 0)
        x = moment.measured[0, 0]
        shifted = [x, *(mean @ before for before in memory)]
        memory = shifted[:2]
        z = sum(one @ tap for one, tap in zip(shifted, taps, strict=True)) + bank.bias.detach()
        if method == "relu":
            value = z.relu()
        else:
            once = mean @ kept[0]
            values = torch.zeros_like(z)
            for agent in range(AGENTS):
                got = kept[1][adjacency[agent]]
                if len(got):
                    values[agent] = got.amax(0) if method == "max-ga" else got.median(0).values
            kept = [z, once]
            value = activation.beta.detach() * z.relu() + activation.weights.detach()[0] * values
        answer = value @ readout.weight.detach().T + readout.bias.detach()
        assert torch.allclose(moment.control[0, 0], (10 * answer).clamp(-10, 10), atol=1e-10)


def test_flights_by_expert_and_policy_take_turns() -> None:
    start, seen = teams_for("test", [1], 3, 6, SHORT, torch.zeros((), dtype=torch.float64)), []
    turns = uniform(torch.tensor([1]), 1, SHORT.steps * 3).view(1, SHORT.steps, 3) < 0.5
    fleet = Policies([policy("tanh")], dtype=torch.float64)
    fly(start, fleet, SHORT, by_expert=turns, watch=seen.append)
    for moment in seen:
        is_expert = (moment.control == moment.expert).all(-1).all(-1)
        assert torch.equal(is_expert, turns[:, moment.step])
    assert 0 < turns.double().mean() < 1
    assert torch.equal(uniform(torch.tensor([1]), 1, 5), uniform(torch.tensor([7, 1]), 1, 5)[1:])
    assert scramble(torch.tensor([1])) != scramble(torch.tensor([2]))


def test_noise_is_within_its_bound_and_only_where_it_is_wanted() -> None:
    start, clean, noisy = teams_for("test", [1], 2, 6, SHORT), [], []
    levels = torch.tensor([0.0, 0.5])
    fly(start, "none", SHORT, watch=clean.append)
    generator = torch.Generator().manual_seed(0)
    fly(start, "none", SHORT, conditions=Conditions(noise=levels), generator=generator, watch=noisy.append)
    errors = torch.stack([one.measured - two.measured for one, two in zip(noisy, clean, strict=True)])[:, 0].abs()
    assert errors[:, 0].max() == 0
    assert 0.4 < errors[:, 1].max() <= 0.5
