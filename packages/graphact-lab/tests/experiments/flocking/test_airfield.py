"""Flights over test teams: conditions are what they are called, the same for every policy, and nobody knows them."""

import pytest
import torch

from graphact_lab.experiments.flocking.experiment import find_settings, job_of
from graphact_lab.experiments.flocking.flight import Conditions, fly
from graphact_lab.experiments.flocking.imitation import teams_for
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.runner import Airfield, make_policies
from graphact_lab.experiments.flocking.world import Teams
from graphact_lab.protocols import run_seed

METHODS = ("relu", "max-ga", "tanh")
TOGETHER = [{}, {"loss": 0.5}, {"radius": 3.0}, {"radius": 1.5}, {"speed": 1.5}, {"noise": 1.0}]
SETTINGS = find_settings("smoke", (), {"steps": "10"})


@pytest.fixture(scope="module")
def field() -> Airfield:
    return Airfield(SETTINGS, 0, "cpu")


def policies_of(field: Airfield, method: str) -> Policies:
    return Policies(make_policies(field.settings, job_of(method), field.seeds))


def losses() -> torch.Generator:
    """Those that all policies meet."""
    return torch.Generator().manual_seed(run_seed("flocking losses", 0))


@pytest.mark.parametrize("method", METHODS)
def test_conditions_flown_together_are_those_flown_apart(field: Airfield, method: str) -> None:
    policies, tests = policies_of(field, method), SETTINGS.tests
    like = torch.zeros(())
    start = teams_for("test", field.seeds, tests, field.imitation.agents, field.world, like)
    flown = field.fly(policies, TOGETHER, delayed=False)
    assert len(flown) == len(TOGETHER)
    for number, (condition, ours) in enumerate(zip(TOGETHER, flown, strict=True)):
        usual = {"radius": 2.0, "loss": 0.0, "noise": 0.0, "speed": 3.0} | condition
        many = len(TOGETHER)  # as often, under this condition alone: links and errors are then drawn in the same order
        teams = Teams(start.position.repeat(1, many, 1, 1), start.velocity.repeat(1, many, 1, 1) * usual["speed"] / 3.0)
        every = Conditions(usual["radius"], *(torch.full((tests * many,), usual[name]) for name in ("loss", "noise")))
        alone = fly(teams, policies, field.world, conditions=every, generator=losses())
        for one, other in zip(ours, alone, strict=True):
            apart = other[:, tests * number : tests * (number + 1)]
            assert torch.allclose(one.double(), apart.double(), rtol=1e-5)
        assert condition == {} or ((ours.cost / flown[0].cost - 1).abs() > 1e-4).all()


def test_delay_and_the_size_of_teams_are_flown(field: Airfield) -> None:
    policies, like = policies_of(field, "max-ga"), torch.zeros(())
    start = teams_for("test", field.seeds, SETTINGS.tests, field.imitation.agents, field.world, like)
    (late,), (usual,) = (field.fly(policies, [condition], delayed=False) for condition in ({"delay": 1}, {}))
    assert torch.equal(late.cost, fly(start, policies, field.world, delayed=True).cost)
    assert torch.equal(usual.cost, fly(start, policies, field.world).cost)
    assert not torch.equal(late.cost, usual.cost)
    (always,) = field.fly(policies, [{}], delayed=True)
    assert torch.equal(always.cost, late.cost)
    larger = teams_for("test", field.seeds, SETTINGS.tests, 12, field.world, like)
    (flown,) = field.fly(policies, [{"agents": 12}], delayed=False)
    assert torch.equal(flown.cost, fly(larger, policies, field.world).cost)


@pytest.mark.usefixtures("real_start")
def test_networks_of_one_realization_start_alike(field: Airfield) -> None:
    found = {method: make_policies(SETTINGS, job_of(method), field.seeds) for method in (*METHODS, "max-l", "fir")}
    for number in range(2):
        for models in found.values():
            ours, first = dict(models[number].named_parameters()), dict(found["relu"][number].named_parameters())
            assert {*first} <= {*ours}
            assert [name for name, value in first.items() if not torch.equal(ours[name], value)] == []
    one, other = (dict(model.named_parameters()) for model in found["relu"])
    assert not any(torch.equal(one[name], other[name]) for name in one)


def test_rows_are_costs_over_the_experts_on_the_same_teams(field: Airfield) -> None:
    policies = policies_of(field, "relu")
    for number, rows in enumerate(field.rows(policies, delayed=False)):
        for row in rows:
            name, level = next(iter(row["condition"].items()), ("", 0))
            agents = int(level) if name == "agents" else field.imitation.agents
            teams = teams_for("test", field.seeds, SETTINGS.tests, agents, field.world, torch.zeros(()))
            scale = level / 3.0 if name == "speed" else 1.0
            teams = Teams(teams.position[number : number + 1], scale * teams.velocity[number : number + 1])
            expert = fly(teams, "expert", field.world).cost.mean().item()
            assert row["value"] == pytest.approx(row["cost"] / expert, rel=1e-6)
