"""The world of flocking beside a plain NumPy version with loops, and what must not change how a team flies."""

import itertools
import math

import numpy as np
import pytest
import torch

from graphact_lab.experiments.flocking.flight import Conditions, fly
from graphact_lab.experiments.flocking.world import (
    Teams,
    World,
    adjacency_of,
    collides,
    disagreement,
    draw_teams,
    in_largest_part,
    measure,
    pairs_of,
)

WORLD = World(steps=30)


def teams_of(count: int = 3, agents: int = 12, seed: int = 0) -> Teams:
    return draw_teams(count, agents, torch.Generator().manual_seed(seed), WORLD)


class PlainTeam:
    """One team, agent by agent, from the equations of the papers alone."""

    def __init__(self, position: np.ndarray, velocity: np.ndarray, world: World) -> None:
        self.position, self.velocity, self.world = position.copy(), velocity.copy(), world
        self.agents = range(len(position))

    def neighbors(self, agent: int) -> list[int]:
        def near(other: int) -> bool:
            return math.dist(self.position[agent], self.position[other]) < self.world.radius

        return [other for other in self.agents if other != agent and near(other)]

    def measured(self, agent: int) -> np.ndarray:
        total = np.zeros(6)
        for other in self.neighbors(agent):
            apart = self.position[agent] - self.position[other]
            length = np.hypot(*apart)
            total[:2] += self.velocity[agent] - self.velocity[other]
            total[2:4] += apart / length**4
            total[4:] += apart / length**2
        return np.clip(total, -self.world.input_limit, self.world.input_limit)

    def control(self, agent: int) -> np.ndarray:
        total = np.zeros(2)
        for other in self.agents:
            if other == agent:
                continue
            share = 1.0 if self.world.alignment is None else self.world.alignment / len(self.agents)
            total -= share * (self.velocity[agent] - self.velocity[other])
            apart = self.position[agent] - self.position[other]
            length = np.hypot(*apart)
            if length < self.world.repulsion:  # minus the gradient of 1 / r^2 - log r^2
                total += 2 * apart / length**4 + 2 * apart / length**2
        return total

    def step(self) -> None:
        limit, dt = self.world.acceleration, self.world.interval
        controls = np.array([np.clip(self.control(agent), -limit, limit) for agent in self.agents])
        self.position += dt * self.velocity + dt**2 / 2 * controls
        self.velocity += dt * controls

    def variance(self) -> float:
        return float(np.mean([np.sum((v - self.velocity.mean(0)) ** 2) for v in self.velocity]))


def close(ours: torch.Tensor, plain: np.ndarray) -> bool:
    return bool(np.allclose(ours.numpy(), plain, rtol=1e-12, atol=1e-12))


@pytest.mark.parametrize("gain", [None, 50.0])
def test_every_step_equals_a_plain_version_from_the_same_state(gain: float | None) -> None:
    teams, seen, world = teams_of(), [], World(steps=30, alignment=gain)
    fly(Teams(*(part.unsqueeze(0) for part in teams)), "expert", world, watch=seen.append)
    for before, after in itertools.pairwise(seen):
        for number in range(3):
            plain = PlainTeam(*(part[0, number].numpy() for part in before.teams), world)
            expected = [plain.measured(agent) for agent in plain.agents]
            assert close(before.measured[0, number], np.array(expected))
            assert close(before.expert[0, number], np.clip([plain.control(one) for one in plain.agents], -10, 10))
            hears_whom = [[other in plain.neighbors(agent) for other in plain.agents] for agent in plain.agents]
            assert np.array_equal(before.adjacency[0, number].numpy(), hears_whom)
            plain.step()
            assert close(after.teams.position[0, number], plain.position)
            assert close(after.teams.velocity[0, number], plain.velocity)


def test_the_cost_is_the_variance_of_velocities_summed_over_the_flight() -> None:
    teams = teams_of(1)
    plain, total = PlainTeam(*(part[0].numpy() for part in teams), WORLD), 0.0
    for _ in range(WORLD.steps):
        total += plain.variance()
        plain.step()
    flown = fly(Teams(*(part.unsqueeze(0) for part in teams)), "expert", WORLD)
    assert flown.cost.item() == pytest.approx(total, rel=1e-9)
    assert flown.final.item() == pytest.approx(plain.variance(), rel=1e-6)
    assert flown.final.item() < 0.5 * disagreement(teams.velocity).item()  # 0.3 s are enough for this


def test_teams_start_as_promised() -> None:
    connected = World(connected=True)
    teams = draw_teams(50, 40, torch.Generator().manual_seed(1), connected)
    pairs = pairs_of(teams.position)
    assert adjacency_of(pairs, 2.0).sum(-1).min() >= 2
    reached = torch.linalg.matrix_power(adjacency_of(pairs, 2.0).double() + torch.eye(40, dtype=torch.float64), 40) > 0
    assert reached.all()
    assert not collides(pairs, World()).any()
    assert teams.position.norm(dim=-1).max() <= math.sqrt(40)
    assert teams.velocity.abs().max() <= 3
    assert teams.velocity.abs().max() > 2.9
    again = draw_teams(50, 40, torch.Generator().manual_seed(1), connected)
    assert torch.equal(teams.position, again.position)


def test_the_largest_part_of_a_team_is_found() -> None:
    adjacency = torch.zeros(2, 5, 5, dtype=torch.bool)
    for team, one, other in ((0, 1, 3), (0, 3, 4), (0, 0, 2), (1, 0, 4)):
        adjacency[team, one, other] = adjacency[team, other, one] = True
    expected = [[False, True, False, True, True], [True, False, False, False, True]]
    assert in_largest_part(adjacency).tolist() == expected


def test_collisions_count_pairs_once() -> None:
    position = torch.tensor([[[[0.0, 0.0], [0.05, 0.0], [5.0, 5.0]]]], dtype=torch.float64)
    flown = fly(Teams(position, torch.zeros_like(position)), "none", World(steps=4))
    assert flown.collisions.tolist() == [[1]]
    assert flown.cost.tolist() == [[0.0]]


def test_lost_links_are_lost_to_both_ends_and_at_the_given_rate() -> None:
    teams, seen = teams_of(40, 20), []
    start = Teams(*(part.unsqueeze(0) for part in teams))
    generator, loss = torch.Generator().manual_seed(0), torch.tensor([0.0] * 20 + [0.3] * 20)
    fly(start, "none", WORLD, conditions=Conditions(loss=loss), generator=generator, watch=seen.append)
    kept, all_links = torch.zeros(2), torch.zeros(2)
    for moment in seen:
        assert torch.equal(moment.adjacency, moment.adjacency.transpose(-1, -2))
        adjacency = adjacency_of(pairs_of(moment.teams.position), WORLD.radius)
        kept += moment.adjacency[0].view(2, -1).sum(1)
        all_links += adjacency[0].view(2, -1).sum(1)
        expected = measure(pairs_of(moment.teams.position), moment.teams.velocity, moment.adjacency, WORLD.input_limit)
        assert torch.equal(expected, moment.measured)  # what is not adjacency is not measured
    assert kept[0] == all_links[0]
    assert abs(kept[1] / all_links[1] - 0.7) < 0.01


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 0.0) for name in ("radius", "interval", "acceleration", "speed", "alignment", "nearest")),
        *((name, value) for name in ("squash", "connected") for value in ("no", 1, None)),
        ("nearest", 2.0),
        ("steps", 0),
    ],
)
def test_a_world_refuses_what_is_none(name: str, value: object) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{name} must be"):
        World(**{name: value})


@pytest.mark.parametrize("world", [World(nearest=1.9), World(radius=0.2)])
def test_teams_for_which_there_is_no_room_are_refused(world: World) -> None:
    with pytest.raises(ValueError, match="nearest and radius must leave room for teams of 20 agents in a disc"):
        draw_teams(2, 20, torch.Generator().manual_seed(0), world)


def test_teams_start_connected_unless_they_need_not() -> None:
    parts = []
    for world in (World(), World(connected=False)):
        adjacency = adjacency_of(pairs_of(draw_teams(40, 50, torch.Generator().manual_seed(1), world).position), 2.0)
        assert adjacency.sum(-1).min() >= 2
        parts.append(in_largest_part(adjacency).all(-1).double().mean().item())
    assert parts[0] == 1
    assert parts[1] < 0.5
