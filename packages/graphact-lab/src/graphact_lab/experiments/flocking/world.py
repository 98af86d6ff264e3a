"""The world of flocking: teams that move, links, measurements, the expert, and what a flight costs.

Positions and velocities are ``(..., N, 2)``: any number of teams, which are alike in their size only. Every function
works on the CPU and on a GPU and never waits for it. The problem is that of Tolstaya et al. ("Learning decentralized
controllers for robot swarms with graph neural networks", CoRL 2019) and Gama et al. ("Graph neural networks for
decentralized controllers", ICASSP 2021), written from these papers.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphact._checks import check_flag, check_integer, check_positive

MAX_ROUNDS = 500  # of drawing what is wrong again; sixty are enough where it is possible at all


@dataclass(frozen=True)
class World:
    """The constants of the problem; lengths in metres, times in seconds.

    Attributes:
        radius: agents that are closer are neighbours.
        repulsion: the expert pushes agents apart that are closer.
        interval: seconds a step.
        steps: of a flight.
        speed: largest component of an initial velocity.
        acceleration: largest component of a control.
        alignment: gain of the expert's alignment. None is the size N of the team, as in the papers, where it is a sum
            over all agents. A number is the gain for teams of any size, 50 in results of before.
        nearest: no two agents start closer; closer ones collide.
        input_limit: measurements are clipped to this magnitude, as the inverse powers of a distance have no bound.
        squash: what a policy answers becomes a control by ``a tanh(answer)``, a the largest acceleration; without, by
            ``a answer``, clipped, as in the papers. The expert's controls are mostly at the limit at first, and to
            meet them without squashing is easier for features that saturate by themselves.
        connected: teams start connected, as in the code that the authors published. Without, as we had read the papers,
            a team may fall into disconnected parts, whose velocities no exchange brings together.
    """

    radius: float = 2.0
    repulsion: float = 1.0
    interval: float = 0.01
    steps: int = 200
    speed: float = 3.0
    acceleration: float = 10.0
    alignment: float | None = None
    nearest: float = 0.1
    input_limit: float = 10.0
    squash: bool = False
    connected: bool = True

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, minimum=1)
        for name in ("radius", "repulsion", "interval", "speed", "acceleration", "nearest", "input_limit"):
            check_positive(name, getattr(self, name))
        if self.alignment is not None:
            check_positive("alignment", self.alignment)
        for name in ("squash", "connected"):
            check_flag(name, getattr(self, name))
        if self.nearest >= self.radius:
            raise ValueError(f"nearest must be less than the radius {self.radius:g}, got {self.nearest:g}")


class Pairs(NamedTuple):
    """Of all pairs of agents i and j: the components of ``r_i - r_j`` and its squared length, each ``(..., N, N)``."""

    x: Tensor
    y: Tensor
    squared: Tensor


class Teams(NamedTuple):
    """Positions and velocities of agents, both ``(..., N, 2)``."""

    position: Tensor
    velocity: Tensor


def draw_teams(count: int, agents: int, generator: torch.Generator, world: World | None = None) -> Teams:
    """Teams that are about to flock, ``(count, agents, 2)`` in float64.

    Positions are uniform in a disc of radius sqrt(N), one agent for each area of pi. Drawn again until there are none
    are agents that are closer than ``nearest`` to one before them or have fewer than two neighbours, and in a connected
    world those outside of the largest connected part. Velocities are uniform within the speed. A velocity that all
    have in common changes nothing, as agents measure differences, so there is none.

    Raises:
        ValueError: no such team is found, as there is no room for one.

    Example:
        >>> teams = draw_teams(3, 50, torch.Generator().manual_seed(0))
        >>> adjacency_of(pairs_of(teams.position), 2.0).sum(-1).min() >= 2
        tensor(True)
    """
    world = world or World()
    check_integer("agents", agents, minimum=3)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def draw(number: int) -> Tensor:
        length, angle = (agents * uniform(number)).sqrt(), 2 * torch.pi * uniform(number)
        return torch.stack([length * angle.cos(), length * angle.sin()], -1)

    position = draw(count * agents).view(count, agents, 2)
    open_, rounds = torch.arange(count), 0  # teams that are not as they should be
    while len(open_):
        rounds += 1
        if rounds > MAX_ROUNDS:
            raise ValueError(
                f"nearest and radius must leave room for teams of {agents} agents in a disc of radius "
                f"{agents**0.5:.3g}, got {world.nearest:g} and {world.radius:g}: no such team after {MAX_ROUNDS} tries"
            )
        pairs = pairs_of(position[open_])
        adjacency = adjacency_of(pairs, world.radius)
        too_close = (pairs.squared < world.nearest**2).tril(-1).any(-1)
        wrong = too_close | (adjacency.sum(-1) < 2)
        if world.connected:
            wrong |= ~in_largest_part(adjacency)
        team, agent = wrong.nonzero(as_tuple=True)
        position[open_[team], agent] = draw(len(team))
        open_ = open_[wrong.any(-1)]
    return Teams(position, world.speed * (2 * uniform(count, agents, 2) - 1))


def in_largest_part(adjacency: Tensor) -> Tensor:
    """Return a mask of the agents in the largest connected part of their team, ``(..., N)``.

    Of parts that are equally large it is the one with the first agent.
    """
    agents = adjacency.size(-1)
    label = torch.arange(agents).expand(adjacency.shape[:-1])
    while True:  # the lowest number in reach spreads, and jumps to the label of that agent
        short = label.to(torch.int16 if agents < 2**15 else torch.int64)
        lowest = torch.where(adjacency, short.unsqueeze(-2), agents).amin(-1).minimum(short).long()
        if torch.equal(lowest, label):
            break
        label = lowest.gather(-1, lowest)
    sizes = torch.zeros_like(label).scatter_add_(-1, label, torch.ones_like(label))
    return label == sizes.argmax(-1, keepdim=True)


def pairs_of(position: Tensor) -> Pairs:
    """The differences of positions between all agents of a team."""
    x, y = (part.unsqueeze(-1) - part.unsqueeze(-2) for part in position.unbind(-1))
    return Pairs(x, y, x * x + y * y)


def adjacency_of(pairs: Pairs, radius: float | Tensor) -> Tensor:
    """Return the adjacency ``(..., N, N)``: agents that are closer than the radius."""
    others = ~torch.eye(pairs.x.size(-1), dtype=torch.bool, device=pairs.x.device)
    return (pairs.squared < radius**2) & others


def measure(pairs: Pairs, velocity: Tensor, adjacency: Tensor, limit: float) -> Tensor:
    r"""Return the measurements of agents ``(..., N, 6)``, clipped at ``limit``, as in the papers:

    .. math:: \sum_j (v_i - v_j), \qquad \sum_j r_{ij} / \|r_{ij}\|^4, \qquad \sum_j r_{ij} / \|r_{ij}\|^2
    """
    links = adjacency.to(velocity.dtype)
    apart = links.sum(-1, keepdim=True) * velocity - links @ velocity
    inverse = torch.where(adjacency, 1 / pairs.squared, 0.0)
    pushes = [(weight * part).sum(-1) for weight in (inverse * inverse, inverse) for part in pairs[:2]]
    return torch.cat([apart, torch.stack(pushes, -1)], -1).clamp(-limit, limit)


def expert(pairs: Pairs, velocity: Tensor, world: World) -> Tensor:
    r"""The controls of the expert, who sees everybody, before clipping, ``(..., N, 2)``.

    .. math:: u_i = -a\,(v_i - \bar v) - \sum_j \nabla_{r_i} U(r_{ij}), \qquad
        U(r) = \|r\|^{-2} - \log \|r\|^2 \text{ within the repulsion radius, constant outside}

    The gain a is N unless the world has another: the first term is then :math:`-\sum_j (v_i - v_j)`, as in the papers.
    What agents do to each other adds up to zero, so momentum is conserved.
    """
    gain = velocity.size(-2) if world.alignment is None else world.alignment
    near = (pairs.squared < world.repulsion**2) & (pairs.squared > 0)
    inverse = torch.where(near, 1 / pairs.squared, 0.0)
    push = 2 * (inverse * inverse + inverse)
    pushes = torch.stack([(push * part).sum(-1) for part in pairs[:2]], -1)
    return pushes - gain * (velocity - velocity.mean(-2, keepdim=True))


def clip(control: Tensor, world: World) -> Tensor:
    """Return the control within the limits of the agents; NaN becomes 0."""
    return control.nan_to_num(0.0).clamp(-world.acceleration, world.acceleration)


def control_of(answer: Tensor, world: World) -> Tensor:
    """The control, before clipping, that an answer of a policy stands for."""
    return world.acceleration * (answer.tanh() if world.squash else answer)


def move(teams: Teams, control: Tensor, world: World) -> Teams:
    """One step of the double integrator with a constant acceleration."""
    step = world.interval
    position = teams.position + step * teams.velocity + 0.5 * step * step * control
    return Teams(position, teams.velocity + step * control)


def disagreement(velocity: Tensor) -> Tensor:
    """The variance of the velocities of each team, ``(...,)``; summed over a flight it is the cost of the papers."""
    return (velocity - velocity.mean(-2, keepdim=True)).square().sum(-1).mean(-1)


def collides(pairs: Pairs, world: World) -> Tensor:
    """Return a mask of the pairs of agents i < j that are too close, ``(..., N, N)``."""
    return (pairs.squared < world.nearest**2).triu(1)
