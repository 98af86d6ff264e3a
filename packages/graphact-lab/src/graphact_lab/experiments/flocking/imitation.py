"""Imitation of the expert with DAgger (Ross, Gordon and Bagnell 2011), all policies of a fleet together.

Everything random depends on the seed of a policy, the epoch and a counter, so that a policy ends as if it had been
trained alone, and all activations see the same teams in the same order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from graphact._checks import check_integer, check_positive, check_probability
from graphact.training.randomness import epoch_order, scramble
from graphact.training.threads import timed
from graphact_lab.experiments.flocking.experiment import EPOCHS
from graphact_lab.experiments.flocking.flight import Moment, fly
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.team_graphs import graph_of
from graphact_lab.experiments.flocking.world import Teams, World, control_of, draw_teams
from graphact_lab.splits import data_generator


@dataclass(frozen=True)
class Imitation:
    """Settings of the training of policies; those of the papers where they state them.

    Attributes:
        teams: training flights.
        validation: flights that choose the epoch.
        flown_again: training flights that are replaced after each epoch by ones in which expert and policy take turns.
        expert_share: the probability that the expert controls a step is multiplied by this after each batch ...
        least_share: ... down to this.
        parts: the steps of the flights of a batch are taken in so many updates; with delay, consecutive steps together.
    """

    agents: int = 50
    teams: int = 400
    validation: int = 20
    epochs: int = EPOCHS
    batch: int = 20
    rate: float = 5e-4
    flown_again: int = 100
    expert_share: float = 0.993
    least_share: float = 0.5
    parts: int = 5

    def __post_init__(self) -> None:
        check_integer("agents", self.agents, minimum=3)
        for name in ("teams", "validation", "epochs", "batch", "parts"):
            check_integer(name, getattr(self, name), minimum=1)
        if check_integer("flown_again", self.flown_again, minimum=0) > self.teams:
            raise ValueError(f"flown_again must be at most the {self.teams} teams, got {self.flown_again}")
        check_positive("rate", self.rate)
        for name in ("expert_share", "least_share"):
            check_probability(name, getattr(self, name))

    def check_parts(self, steps: int) -> None:
        """Raise if the steps of a flight cannot be divided into the parts."""
        if steps % self.parts:
            raise ValueError(f"parts must divide the {steps} steps of a flight, got {self.parts}")


@dataclass(frozen=True)
class ImitationResult:
    """Results by policy: the cost on validation flights, lowest and in every epoch, and the epoch."""

    validation: list[float]
    best_epoch: list[int]
    history: list[list[float]]


@lru_cache(maxsize=64)
def drawn_teams(purpose: str, seed: int, count: int, agents: int, world: World) -> Teams:
    """Teams that no other purpose has."""
    return draw_teams(count, agents, data_generator(f"flocking {purpose}", seed, agents), world)


def teams_for(
    purpose: str, seeds: Sequence[int], count: int, agents: int, world: World, like: Tensor | None = None
) -> Teams:
    """``count`` teams for each seed, ``(R, count, agents, 2)``, of which no other purpose has any."""
    drawn = [drawn_teams(purpose, seed, count, agents, world) for seed in seeds]
    made = Teams(*(torch.stack(parts) for parts in zip(*drawn, strict=True)))
    return made if like is None else Teams(*(part.to(like) for part in made))


class Flights:
    """Recorded flights of R policies: what was measured, who was in range, and what the expert would have done."""

    def __init__(self, start: Teams, world: World, delayed: bool) -> None:
        self.start, self.world, self.delayed = start, world, delayed
        replicas, teams, agents, _ = start.position.shape
        shape = (replicas, teams, world.steps, agents)
        self.measured, self.target = (start.position.new_zeros(*shape, size) for size in (6, 2))
        self.adjacency = torch.zeros(*shape, agents, dtype=torch.bool, device=start.position.device)
        self.rows = torch.arange(replicas, device=start.position.device).unsqueeze(1)

    def recorder(self, chosen: Tensor) -> Callable[[Moment], None]:
        """Return the callback of a flight whose first teams are those chosen for each policy, ``(R, n)``."""
        count = chosen.size(1)

        def record(moment: Moment) -> None:
            place = self.rows, chosen, moment.step
            self.measured[place] = moment.measured[:, :count]
            self.adjacency[place] = moment.adjacency[:, :count]
            self.target[place] = moment.expert[:, :count]

        return record

    def starts(self, chosen: Tensor) -> Teams:
        return Teams(*(part[self.rows, chosen] for part in self.start))

    def losses(self, policies: Policies, teams: Tensor, part: int, parts: int) -> Tensor:
        """The mean squared error ``(R,)`` of controls in one part of the steps of flights ``(R, b)``.

        The unit is the largest acceleration. A part is every ``parts``-th step or, with delay, a row of consecutive
        ones, and before them those whose messages are still under way.
        """
        count = self.world.steps // parts
        first = max(0, part * count - policies.exchanges) if self.delayed else part
        last, stride = ((part + 1) * count, 1) if self.delayed else (self.world.steps, parts)
        ahead = part * count - first if self.delayed else 0
        place = self.rows, teams, slice(first, last, stride)
        measured, adjacency, target = self.measured[place], self.adjacency[place], self.target[place]
        lists = adjacency.flatten(0, 1) if self.delayed else adjacency.flatten(0, 2)
        graph = graph_of(lists, delayed=self.delayed, dtype=measured.dtype)
        answers = policies(measured.flatten(1, 3), graph).view(target.shape)
        errors = (control_of(answers, self.world) - target) / self.world.acceleration
        return errors[:, :, ahead:].square().mean((1, 2, 3, 4))


def uniform(seeds: Tensor, epoch: int, count: int) -> Tensor:
    """``count`` numbers in [0, 1) for each seed, ``(R, count)``, in float64; others in every epoch."""
    streams = scramble(scramble(~seeds) + epoch)
    bits = scramble(streams.unsqueeze(-1) + torch.arange(count, device=seeds.device))
    return (bits & (2**53 - 1)).double() / 2**53


def imitate(
    policies: Policies,
    seeds: Sequence[int],
    imitation: Imitation,
    world: World,
    *,
    delayed: bool = False,
    progress: Callable[[int, float], None] | None = None,
) -> ImitationResult:
    """Train policies, each with a seed of its own, and leave them with the parameters that validated best."""
    imitation.check_parts(world.steps)
    like = policies.parameters[0].detach()
    start = teams_for("training", seeds, imitation.teams, imitation.agents, world, like)
    judged = teams_for("validation", seeds, imitation.validation, imitation.agents, world, like)
    flights, numbers = Flights(start, world, delayed), torch.tensor(seeds, device=like.device)
    everyone = torch.arange(imitation.teams, device=like.device).expand(len(policies), -1)
    for part in everyone.split(max(1, imitation.teams // 4), dim=1):
        fly(flights.starts(part), "expert", world, watch=flights.recorder(part))
    optimizer = torch.optim.Adam(policies.parameters, lr=imitation.rate, betas=(0.9, 0.999))
    best = torch.full((len(policies),), torch.inf, dtype=torch.float64, device=like.device)
    best_epoch, state = torch.zeros_like(numbers), policies.state()
    history, share = [], 1.0

    def step(teams: Tensor, part: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        flights.losses(policies, teams, part, imitation.parts).sum().backward()
        optimizer.step()

    update = timed(step)
    for epoch in range(1, imitation.epochs + 1):
        order = epoch_order(numbers, epoch, imitation.teams)
        for teams in order.split(imitation.batch, 1):
            for part in range(imitation.parts):
                update(teams, part)
            share = max(share * imitation.expert_share, imitation.least_share)
        again = epoch_order(scramble(numbers), epoch, imitation.teams)[:, : imitation.flown_again]
        again = again[:, : 0 if epoch == imitation.epochs else None]
        both = Teams(*(torch.cat(parts, 1) for parts in zip(flights.starts(again), judged, strict=True)))
        coins = uniform(numbers, epoch, world.steps * again.size(1)).view(len(policies), world.steps, -1) < share
        by_expert = torch.nn.functional.pad(coins, (0, imitation.validation))
        watch = flights.recorder(again)
        flown = fly(both, policies, world, delayed=delayed, by_expert=by_expert, watch=watch)
        cost = flown.cost[:, again.size(1) :].mean(1)
        is_better = cost < best
        best, best_epoch = torch.where(is_better, cost, best), torch.where(is_better, epoch, best_epoch)
        policies.keep(state, is_better)
        history.append(cost)
        if progress is not None:
            progress(epoch, float(cost.mean()))
    policies.restore(state)
    policies.write_back()
    by_policy = torch.stack(history, 1).tolist()
    return ImitationResult(best.tolist(), best_epoch.tolist(), by_policy)
