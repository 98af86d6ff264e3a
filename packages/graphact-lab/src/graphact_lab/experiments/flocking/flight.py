"""Flights: teams under the control of policies, of the expert, or of nobody, all of them step by step together."""

from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from graphact_lab.experiments.flocking import world as physics
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.team_graphs import graph_of, lost_links
from graphact_lab.experiments.flocking.world import Teams, World

Controller = Policies | Literal["expert", "none"]


class Moment(NamedTuple):
    """All teams at one step: states, adjacency, what agents measured, the expert's controls and those flown."""

    step: int
    teams: Teams
    adjacency: Tensor  # (R, B, N, N)
    measured: Tensor  # (R, B, N, 6)
    expert: Tensor  # (R, B, N, 2), clipped
    control: Tensor  # (R, B, N, 2)


class Flight(NamedTuple):
    """Results of flights, each ``(R, B)``: the cost, pairs that collided, and the last variance of velocities."""

    cost: Tensor
    collisions: Tensor
    final: Tensor


class Conditions(NamedTuple):
    """Conditions that may differ between teams: each a number, or a tensor ``(B,)``.

    A link is lost with the probability ``loss``, independently at every step;
    ``noise`` is the largest error of a measurement,
    uniform; ``radius`` is that of communication.
    """

    radius: float | Tensor | None = None
    loss: float | Tensor = 0.0
    noise: float | Tensor = 0.0


@torch.no_grad()
def fly(
    teams: Teams,
    controller: Controller,
    world: World,
    *,
    conditions: Conditions | None = None,
    delayed: bool = False,
    by_expert: Tensor | None = None,
    generator: torch.Generator | None = None,
    watch: Callable[[Moment], None] | None = None,
) -> Flight:
    """Fly teams ``(R, B, N, 2)``; policy r controls those at r.

    Args:
        teams: where they start.
        controller: policies, or by name.
        world: the constants of the problem.
        conditions: losses, noise and radius.
        delayed: whether a message takes a step, so that agents know what is k hops away as it was k steps ago.
        by_expert: ``(R, steps, B)``, whether the expert controls a team at a step in the place of the policy.
        generator: of lost links and noise, on the device of the teams.
        watch: called at every step.
    """
    conditions = conditions or Conditions()
    radius, loss, noise = (
        value.view(-1, 1, 1) if isinstance(value, Tensor) else value
        for value in (world.radius if conditions.radius is None else conditions.radius, *conditions[1:])
    )
    loses, is_noisy = (isinstance(value, Tensor) or value > 0 for value in (loss, noise))
    cost = torch.zeros(teams.position.shape[:2], dtype=torch.float64, device=teams.position.device)
    collided = torch.zeros(*teams.position.shape[:3], teams.position.size(2), dtype=torch.bool, device=cost.device)
    window = controller.exchanges + 1 if isinstance(controller, Policies) and delayed else 1
    past: deque[tuple[Tensor, Tensor]] = deque(maxlen=window)
    flown_by_expert = controller == "expert" or by_expert is not None
    ideal = control = torch.zeros_like(teams.velocity)
    measured, adjacency = control, collided
    for step in range(world.steps):
        pairs = physics.pairs_of(teams.position)
        if watch is not None or isinstance(controller, Policies):
            adjacency = physics.adjacency_of(pairs, radius)
            if loses:
                assert generator is not None
                adjacency = lost_links(adjacency, loss, generator)
            measured = physics.measure(pairs, teams.velocity, adjacency, world.input_limit)
            if is_noisy:
                error = torch.rand(measured.shape, generator=generator, device=cost.device, dtype=measured.dtype)
                measured = measured + noise * (2 * error - 1)
        if watch is not None or flown_by_expert:
            ideal = physics.clip(physics.expert(pairs, teams.velocity, world), world)
        if isinstance(controller, Policies):
            past.append((measured, adjacency))
            control = physics.clip(physics.control_of(decide(controller, past, delayed), world), world)
            if by_expert is not None:
                control = torch.where(by_expert[:, step, :, None, None], ideal, control)
        elif controller == "expert":
            control = ideal
        cost += physics.disagreement(teams.velocity)
        collided |= physics.collides(pairs, world)
        if watch is not None:
            watch(Moment(step, teams, adjacency, measured, ideal, control))
        teams = physics.move(teams, control, world)
    return Flight(cost, collided.sum((-1, -2)), physics.disagreement(teams.velocity))


def decide(policies: Policies, past: deque[tuple[Tensor, Tensor]], delayed: bool) -> Tensor:
    """Return the answers of policies ``(R, B, N, 2)`` to measurements on a graph; with delay, over the last steps.

    See :func:`~graphact_lab.experiments.flocking.world.control_of`.
    """
    measured, adjacency = (torch.stack(parts, 2) if delayed else parts[-1] for parts in zip(*past, strict=True))
    replicas, shape = len(policies), measured.shape
    graph = graph_of(adjacency.flatten(0, 1), delayed=delayed, dtype=measured.dtype)
    control = policies(measured.reshape(replicas, -1, shape[-1]), graph).view(*shape[:-1], -1)
    return control[:, :, -1] if delayed else control
