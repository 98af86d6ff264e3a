"""The flow of a piecewise affine velocity field against an integrated one, its inverse, and derivatives."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from graphact.functional import cpab

X = torch.linspace(-1.3, 1.3, 53, dtype=torch.float64)


def integrated(x, theta, radius):
    """One unit of time in small steps; the field is interpolated by NumPy."""
    vertices = np.linspace(0, 1, len(theta) + 2)
    velocity = np.concatenate([[0.0], theta, [0.0]])
    inside = np.abs(x) < radius
    start = (x[inside] + radius) / (2 * radius)
    field = lambda _, u: np.interp(u, vertices, velocity)  # noqa: E731
    end = solve_ivp(field, (0, 1), start, rtol=1e-11, atol=1e-12, max_step=1e-3).y[:, -1]
    out = x.copy()
    out[inside] = (2 * end - 1) * radius
    return out


@pytest.mark.parametrize("size", [0.02, 0.3, 2.0])
@pytest.mark.parametrize("cells", [2, 3, 16])
def test_values(cells, size):
    theta = np.random.default_rng(cells).normal(size=cells - 1) * size
    found = cpab(X, torch.from_numpy(theta), 1.1)
    expected = integrated(X.numpy(), theta, 1.1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-8)  # kinks cost the integrator accuracy


def test_special_fields():
    constant = torch.full((3,), 0.125, dtype=torch.float64)  # between the outer cells, no acceleration
    x = torch.tensor([-0.4], dtype=torch.float64)
    torch.testing.assert_close(cpab(x, constant), x + 0.25)
    torch.testing.assert_close(cpab(X, 0 * constant), X, rtol=0, atol=1e-15)
    rest = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64)  # the middle is a fixed point that attracts
    moved = cpab(torch.tensor([0.0, 0.1, -0.1], dtype=torch.float64), rest)
    torch.testing.assert_close(moved, torch.tensor([0.0, 0.1, -0.1], dtype=torch.float64) * np.exp(-2.0))


@pytest.mark.parametrize("cells", [2, 5, 16])
def test_it_is_a_diffeomorphism_of_the_interval(cells):
    theta = torch.randn(cells - 1, dtype=torch.float64) * 0.3
    moved = cpab(X, theta, 1.2)
    assert (moved.diff() > 0).all()
    torch.testing.assert_close(cpab(moved, -theta, 1.2), X, rtol=0, atol=1e-10)
    assert torch.equal(moved[X.abs() >= 1.2], X[X.abs() >= 1.2])
    assert (moved[X.abs() < 1.2].abs() < 1.2).all()


def test_difw():
    """The package that DiGRAF uses; its parameters are those of another basis."""
    core = pytest.importorskip("difw.core.tessellation")  # not on machines for GPUs
    transformer = pytest.importorskip("difw.backend.numpy.transformer")
    from difw.core.utility import Parameters

    cells, rng = 16, np.random.default_rng(0)
    tessellation = core.Tessellation(cells, 0, 1, True, basis="rref")
    parameters = Parameters()
    parameters.nc, parameters.xmin, parameters.xmax, parameters.B = cells, 0, 1, tessellation.B
    parameters.precomputed = False
    for _ in range(5):
        theirs = rng.normal(size=cells - 1) * 0.3
        slope_and_offset = (tessellation.B @ theirs).reshape(cells, 2)
        vertices = np.arange(1, cells) / cells
        ours = slope_and_offset[:-1, 0] * vertices + slope_and_offset[:-1, 1]
        places = rng.uniform(0.01, 0.99, 200)
        expected = transformer.integrate_numeric(places, theirs[None], many_steps(parameters))[0]
        found = (cpab(torch.from_numpy(2 * places - 1), torch.from_numpy(ours)) + 1) / 2
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def many_steps(parameters):
    parameters.nSteps1, parameters.nSteps2 = 500, 5
    return parameters


@pytest.mark.parametrize("size", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("shape", [(15,), (2, 1, 1, 7), (2, 2, 1, 3), (2, 3, 1)])
def test_derivatives(shape, size):
    x = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
    theta = (size * torch.randn(shape, dtype=torch.float64)).requires_grad_()
    function = lambda x, theta: cpab(x, theta, 1.5)  # noqa: E731
    assert torch.autograd.gradcheck(function, (x, theta), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, (x, theta), fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_precision(dtype):
    theta, x = (torch.randn(15) * 0.2).to(dtype), X.to(dtype)
    found = cpab(x, theta, 1.2)
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.double(), cpab(x.double(), theta.double(), 1.2), rtol=0, atol=tolerance)


def test_extreme_velocities_stay_finite():
    for size in (1e-40, 1e-20, 30.0):
        x = torch.linspace(-1, 1, 101).requires_grad_()
        theta = (size * torch.randn(63)).requires_grad_()
        out = cpab(x, theta)
        assert ((out >= -1) & (out <= 1)).all()
        out.sum().backward()
        assert x.grad.isfinite().all()
        assert theta.grad.isfinite().all()
