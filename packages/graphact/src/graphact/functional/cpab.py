"""Diffeomorphisms of an interval: the flow of a continuous piecewise affine velocity field (CPAB), in closed form."""

import torch
from torch import Tensor

from graphact._checks import check_companion, check_positive, check_tensor
from graphact.kernels.reference import accumulation_dtype

LONG = 2.0  # stands for every time above the time 1 of the flow
MIN_SPEED = 1e-30  # slower values do not leave their cell
MAX_EXPONENT = 80.0  # that float32 holds


def cpab(x: Tensor, theta: Tensor, radius: float = 1.0) -> Tensor:
    r"""Move every value along a velocity field for one unit of time (Freifeld et al. 2017), as DiGRAF does.

    .. math:: T(x) = \phi(x, 1), \qquad \partial \phi(x, t) / \partial t = v(\phi(x, t)), \qquad \phi(x, 0) = x

    The interval [-radius, radius] is divided into n cells of equal length. The velocity is affine in each cell,
    continuous, and 0 at both ends; theta holds its values at the n - 1 vertices between cells, in lengths of the
    interval. T is then a diffeomorphism of the interval with :math:`T^{-1}_\theta = T_{-\theta}`, and outside of it the
    identity. In a cell the flow is exponential, and so is the time until it leaves the cell; the time from vertex to
    vertex depends on theta alone. So a value takes two steps, however many cells it crosses: out of its cell, and from
    the last vertex that it reaches. Gradients are exact, and torch takes them of any order.

    Args:
        x: values.
        theta: velocities, ``(n - 1,)`` for all values, or with further dimensions in front that broadcast with x.
        radius: half the length of the interval.

    Shapes:
        x: any; theta: ``(..., n - 1)``; result: that of x.

    Example:
        >>> import torch, graphact
        >>> x, theta = torch.tensor([-2.0, -0.5, 0.0, 0.5]), torch.tensor([0.1, 0.3, -0.2])
        >>> moved = graphact.functional.cpab(x, theta)
        >>> moved
        tensor([-2.0000, -0.1936,  0.2594,  0.3271])
        >>> torch.allclose(graphact.functional.cpab(moved, -theta), x, atol=1e-6)
        True
    """
    radius = check_positive("radius", radius)
    theta = check_companion("theta", check_tensor("theta", theta), check_tensor("x", x))
    if theta.dim() == 0 or theta.size(-1) == 0:
        raise ValueError(f"theta must have the shape (..., n - 1) for n >= 2 cells, got {tuple(theta.shape)}")
    wide = accumulation_dtype(x.dtype)
    place = (x.to(wide) + radius) / (2 * radius)
    inside = (place > 0) & (place < 1)
    moved = flow(torch.where(inside, place, 0.5), theta.to(wide))
    return torch.where(inside, (2 * moved - 1) * radius, x.to(wide)).to(x.dtype)


def flow(u: Tensor, theta: Tensor) -> Tensor:
    """Return the flow on (0, 1); see :func:`cpab`. Values that move to the left are mirrored."""
    cells, length = theta.size(-1) + 1, theta.size(-1) + 2
    velocity = torch.nn.functional.pad(theta, (1, 1))
    both = torch.stack([velocity, -velocity.flip(-1)], -2)  # (..., 2, n + 1): as it is, and in the mirror
    elapsed = torch.nn.functional.pad(crossing_times(both[..., :-1], both[..., 1:], 1 / cells).cumsum(-1), (1, 0))
    row = torch.arange(theta.shape[:-1].numel(), device=u.device).view(theta.shape[:-1]) * (2 * length)
    vertex, clock = both.flatten(), elapsed.flatten()

    cell = (u.detach() * cells).long().clamp(0, cells - 1)
    before, after = look_up(vertex.detach(), row + cell), look_up(vertex.detach(), row + cell + 1)
    to_left = before + (u.detach() * cells - cell) * (after - before) < 0
    cell, u = torch.where(to_left, cells - 1 - cell, cell), torch.where(to_left, 1 - u, u)
    first = row + to_left * length  # where the tables of a value begin
    index = first + cell

    before, after = look_up(vertex, index), look_up(vertex, index + 1)
    slope, left = (after - before) * cells, (cell.to(u.dtype) + 1) / cells - u
    speed = before + slope * (u - cell.to(u.dtype) / cells)
    out_in = crossing_times(speed, after, left)
    leaves = out_in < 1
    stay = u + speed * grow(torch.where(leaves, 0.0, slope))

    reached = look_up(clock, index + 1) + (1 - out_in)
    last = last_at_most(clock.detach(), first, cell + 1, reached.detach(), cells)
    begin, rest = look_up(vertex, first + last), torch.where(leaves, reached - look_up(clock, first + last), 0.0)
    slope = (look_up(vertex, first + last + 1) - begin) * cells
    beyond = last.to(u.dtype) / cells + begin * rest * grow(slope * rest)
    moved = torch.where(leaves, beyond, stay)
    return torch.where(to_left, 1 - moved, moved)


def crossing_times(speed: Tensor, end: Tensor, distance: Tensor | float) -> Tensor:
    """Return the time that an affine flow takes over a distance on which its speed becomes ``end``, at most LONG."""
    with torch.no_grad():
        moves = (speed > MIN_SPEED) & (end > MIN_SPEED)
        ratio = torch.where(moves, end, 1.0) / torch.where(moves, speed, 1.0) - 1
        arrives = moves & (distance / torch.where(moves, speed, 1.0) * log1p_ratio(ratio) < LONG)
    speed, end = torch.where(arrives, speed, 1.0), torch.where(arrives, end, 1.0)  # gradients could overflow elsewhere
    return torch.where(arrives, distance / speed * log1p_ratio((end - speed) / speed), LONG)


def last_at_most(clock: Tensor, first: Tensor, low: Tensor, time: Tensor, cells: int) -> Tensor:
    """Return the last vertex at or after ``low`` that is reached within ``time``, by bisection in each table."""
    low, high = torch.broadcast_tensors(low.clamp(max=cells - 1), torch.full_like(low, cells))
    for _ in range((cells - 1).bit_length()):
        middle = (low + high) // 2
        is_reached = look_up(clock, first + middle) <= time
        low, high = torch.where(is_reached, middle, low), torch.where(is_reached, high, middle)
    return low


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Return ``table[index]`` of a table ``(M,)``."""
    return table.index_select(0, index.flatten()).view(index.shape)


def grow(w: Tensor) -> Tensor:
    """Return ``(e^w - 1) / w``, by its series near 0, where the quotient has no accurate derivative."""
    near, w = w.abs() < 0.1, w.clamp(max=MAX_EXPONENT)
    far, small = torch.where(near, 1.0, w), torch.where(near, w, 0.0)
    series = torch.ones_like(w)
    for order in range(10, 1, -1):
        series = 1 + series * small / order
    return torch.where(near, series, torch.expm1(far) / far)


def log1p_ratio(z: Tensor) -> Tensor:
    """Return ``log(1 + z) / z``, by its series near 0."""
    near = z.abs() < 0.01
    far, small = torch.where(near, 1.0, z), torch.where(near, z, 0.0)
    series = torch.full_like(z, 1 / 9)
    for order in range(8, 0, -1):
        series = 1 / order - series * small
    return torch.where(near, series, torch.log1p(far) / far)
