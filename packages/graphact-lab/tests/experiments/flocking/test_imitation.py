"""DAgger beside a plain loop over one module: whole trainings, team by team and step by step."""

import copy
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from graphact.nn import GCNN, GraphModule
from graphact.training.randomness import epoch_order, scramble
from graphact_lab.experiments.flocking.imitation import Imitation, imitate, teams_for, uniform
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.team_graphs import graph_of
from graphact_lab.experiments.flocking.world import World, adjacency_of, clip, disagreement, expert, measure, pairs_of

WORLDS = [World(steps=10), World(steps=10, squash=True)]
WORLD = WORLDS[0]
SETTINGS = Imitation(
    agents=6, teams=5, validation=2, epochs=4, batch=2, rate=2e-2, flown_again=3, expert_share=0.7, least_share=0.3
)
SEEDS = (25, 26)
PURPOSES = ("training", "validation", "test")


def policy(seed: int) -> GraphModule:
    torch.manual_seed(seed)
    shape = {"order": 2, "out_features": 2, "bias": True, "start": "uniform"}
    return GCNN([6, 5], activation="max-ga", **shape).double()


@dataclass
class Record:
    """Record measurements, adjacency and the expert's controls at each step of a flight."""

    measured: list[Tensor] = field(default_factory=list)
    adjacency: list[Tensor] = field(default_factory=list)
    target: list[Tensor] = field(default_factory=list)


def answers(model: GraphModule, record: Record, delayed: bool) -> list[Tensor]:
    """Return a policy's answers at every step so far; with delay, from all messages since the first."""
    if not delayed:
        return [
            model(measured, graph_of(adjacency.unsqueeze(0), dtype=torch.float64))
            for measured, adjacency in zip(record.measured, record.adjacency, strict=True)
        ]
    graph = graph_of(torch.stack(record.adjacency).unsqueeze(0), delayed=True, dtype=torch.float64)
    return list(model(torch.cat(record.measured), graph).split(SETTINGS.agents))


def control_of(answer: Tensor, world: World) -> Tensor:
    """The control that an answer stands for, in units of the largest."""
    return answer.tanh() if world.squash else answer


def fly_one(model: GraphModule | None, position: Tensor, velocity: Tensor, coins: Tensor, delayed: bool, world: World):
    """One team with a policy, or with the expert where its coin says so; the record and the cost."""
    record, cost = Record(), 0.0
    for is_expert in coins.tolist():
        pairs = pairs_of(position)
        adjacency = adjacency_of(pairs, WORLD.radius)
        record.adjacency.append(adjacency)
        record.measured.append(measure(pairs, velocity, adjacency, WORLD.input_limit))
        record.target.append(clip(expert(pairs, velocity, WORLD), WORLD))
        control = record.target[-1]
        if not is_expert:
            assert model is not None
            with torch.no_grad():
                control = clip(10 * control_of(answers(model, record, delayed)[-1], world), world)
        cost += float(disagreement(velocity))
        position, velocity = position + 0.01 * velocity + 0.5e-4 * control, velocity + 0.01 * control
    return record, cost


def plain_training(seed: int, delayed: bool, world: World):
    """The module that validates best, and the costs of all epochs on the validation flights."""
    always, never = torch.ones(WORLD.steps, dtype=torch.bool), torch.zeros(WORLD.steps, dtype=torch.bool)
    start, judged = (
        [*zip(*(part[0] for part in teams_for(purpose, [seed], count, SETTINGS.agents, WORLD)), strict=True)]
        for purpose, count in (("training", SETTINGS.teams), ("validation", SETTINGS.validation))
    )
    records = [fly_one(None, *team, always, delayed, world)[0] for team in start]
    model, share, history, best = policy(seed), 1.0, [], None
    optimizer, number = torch.optim.Adam(model.parameters(), lr=SETTINGS.rate), torch.tensor([seed])
    for epoch in range(1, SETTINGS.epochs + 1):
        for teams in epoch_order(number, epoch, SETTINGS.teams)[0].split(SETTINGS.batch):
            for part in range(SETTINGS.parts):
                count = WORLD.steps // SETTINGS.parts
                steps = range(part * count, (part + 1) * count) if delayed else range(part, WORLD.steps, SETTINGS.parts)
                errors = []
                for team in teams:
                    answered = answers(model, records[team], delayed)
                    errors += [control_of(answered[step], world) - records[team].target[step] / 10 for step in steps]
                optimizer.zero_grad()
                torch.stack(errors).square().mean().backward()
                optimizer.step()
            share = max(share * SETTINGS.expert_share, SETTINGS.least_share)
        if epoch < SETTINGS.epochs:  # nobody would learn from those of the last
            again = epoch_order(scramble(number), epoch, SETTINGS.teams)[0, : SETTINGS.flown_again]
            coins = uniform(number, epoch, WORLD.steps * len(again)).view(WORLD.steps, -1) < share
            assert coins.any()
            assert not coins.all()
            for place, team in enumerate(again.tolist()):
                records[team], _ = fly_one(model, *start[team], coins[:, place], delayed, world)
        history.append(sum(fly_one(model, *team, never, delayed, world)[1] for team in judged) / len(judged))
        if history[-1] == min(history):
            best = copy.deepcopy(model)
    return best, history


@pytest.mark.parametrize(("delayed", "world"), [(False, WORLDS[0]), (True, WORLDS[0]), (False, WORLDS[1])])
def test_dagger_is_what_a_plain_loop_does(delayed: bool, world: World) -> None:
    """For each of two policies, which are trained together."""
    fleet = Policies([policy(seed) for seed in SEEDS], dtype=torch.float64)
    trained = imitate(fleet, SEEDS, SETTINGS, world, delayed=delayed)
    for number, seed in enumerate(SEEDS):
        best, history = plain_training(seed, delayed, world)
        assert trained.history[number] == pytest.approx(history, rel=1e-9)
        assert trained.validation[number] == pytest.approx(min(history), rel=1e-9)
        assert trained.best_epoch[number] == 1 + history.index(min(history))
        for ours, plain in zip(fleet.models[number].parameters(), best.parameters(), strict=True):
            assert torch.allclose(ours, plain, atol=1e-9)
    assert min(trained.best_epoch) < SETTINGS.epochs  # or keeping the last one would do as well


def test_no_purpose_has_a_team_of_another() -> None:
    drawn = [teams_for(purpose, [1, 2], 5, 9, WORLD) for purpose in PURPOSES]
    for part in range(2):
        places = torch.cat([teams[part].flatten(0, 2) for teams in drawn])
        assert len(places.unique(dim=0)) == len(places) == 3 * 2 * 5 * 9
