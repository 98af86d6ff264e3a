"""Temperatures of weather stations from noisy measurements: the task, simple methods, and a better start."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphact._checks import check_choice, check_integer
from graphact.graph import Graph
from graphact.training import Task
from graphact_lab.baselines import constant_answer, least_squares, score_on_test
from graphact_lab.data.download import PathLike, locate
from graphact_lab.data.molene import Temperatures, kilometres_of, read_molene
from graphact_lab.splits import check_drawn, data_generator, eighty_ten_ten

NAME = "denoising"
NEIGHBORS = 10
CHANNELS = ("noisy", "local estimate", "spread", "mean")
# Units of the channels, in kelvin. They are agreed beforehand, round numbers of the size of winter temperatures: units
# computed from the data would be averages over all stations, and no station has all others as neighbours.
TEMPERATURE_UNIT = 2.5
TYPICAL_SPREAD = 2.5
SPREAD_UNIT = 1.0
MEAN_UNIT = 1.0
NOISE_TOLERANCE = 0.1
NOISE_FROM = ("all hours", "training hours")


def denoising(
    split: int = 0,
    seed: int = 0,
    *,
    snr_db: float = 3.0,
    noise_from: str = "all hours",
    directory: PathLike | None = None,
    download: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Task:
    r"""Remove white noise from the hourly temperatures of 32 stations (section 4.3 of the paper, Molène).

    The graph connects each station with its 10 nearest ones, weighted by
    :meth:`~graphact.Graph.nearest_neighbors` from coordinates in kilometres. The 744 signals are the hours of
    January 2014, split 80/10/10 at random. From all temperatures one number is subtracted, their mean over all
    stations and training hours: in kelvin and uncentred, 3 dB of noise would be 199 K. A target x is the centred
    signal, its input is :math:`x + n` with white Gaussian noise n of the variance
    :math:`P \cdot 10^{-\text{SNR}/10}`, where P is the mean of :math:`x_i^2` over all stations and hours, or over
    the training hours. The same noise, scaled, serves all values of ``snr_db``.

    Args:
        split: number of the split; split and noise depend on it and on the seed.
        seed: seed of all randomness.
        snr_db: signal-to-noise ratio in decibel.
        noise_from: "all hours", or "training hours" to leave test hours out of the power P.
        directory: data directory; see :func:`~graphact_lab.tasks.locate`.
        download: whether missing data may be downloaded.
        dtype: floating-point type of graph, signals and targets.

    Raises:
        DataError: the data is missing or damaged.
    """
    check_drawn("split", split)
    temperatures = read_molene(locate("molene", directory, download))
    return noisy_hours(temperatures, station_graph(temperatures), split, seed, snr_db, dtype, noise_from)


def denoising_tasks(
    splits: int = 20,
    seed: int = 0,
    *,
    snrs_db: Sequence[float] = (3.0,),
    noise_from: str = "all hours",
    directory: PathLike | None = None,
    download: bool = True,
    dtype: torch.dtype = torch.float32,
) -> list[Task]:
    """All tasks ``denoising(split, seed, snr_db=...)``, by SNR, then split; they share the graph, and one reading."""
    temperatures = read_molene(locate("molene", directory, download))
    graph = station_graph(temperatures)
    return [
        noisy_hours(temperatures, graph, split, seed, snr_db, dtype, noise_from)
        for snr_db in snrs_db
        for split in range(check_integer("splits", splits, minimum=1))
    ]


def station_graph(temperatures: Temperatures) -> Graph:
    """The 10 nearest neighbours of each station, as a shift operator in float64."""
    kilometres = torch.from_numpy(kilometres_of(temperatures.degrees))
    return Graph.nearest_neighbors(kilometres, NEIGHBORS).normalize("spectral")


def noisy_hours(
    temperatures: Temperatures,
    graph: Graph,
    split: int,
    seed: int,
    snr_db: float,
    dtype: torch.dtype,
    noise_from: str = "all hours",
) -> Task:
    """The task of one split at one signal-to-noise ratio."""
    kelvin = torch.from_numpy(temperatures.kelvin)
    parts = eighty_ten_ten(len(kelvin), data_generator(f"{NAME} split", seed, split))
    mean = kelvin[parts.train].mean()
    clean = (kelvin - mean).unsqueeze(-1)
    uses_all_hours = check_choice("noise_from", noise_from, NOISE_FROM) == "all hours"
    measured = clean if uses_all_hours else clean[parts.train]
    spread = (measured.square().mean() * 10 ** (-snr_db / 10)).sqrt()
    generator = data_generator(f"{NAME} noise", seed, split)
    noise = spread * torch.randn(clean.shape, dtype=torch.float64, generator=generator)
    return Task(
        name=NAME,
        graph=graph.to(dtype=dtype),
        inputs=(clean + noise).to(dtype),
        targets=clean.to(dtype),
        **parts._asdict(),
        node=None,
        out_features=1,
        loss="mse",
        metric="rmse",
        details={"split": split, "seed": seed, "snr_db": float(snr_db)}
        | {"mean_kelvin": mean.item(), "noise_kelvin": spread.item()},
    )


def baselines(task: Task, _: int) -> dict[str, float]:
    """Doing nothing, spatial averaging, the best matrix from all stations to all, and from neighbours alone."""
    noisy, clean = task.inputs.squeeze(-1), task.targets.squeeze(-1)
    mean_of_hour = noisy.mean(dim=1, keepdim=True)
    offset = (clean - mean_of_hour)[task.train].mean(dim=0)
    with_constant = torch.cat([noisy, torch.ones_like(mean_of_hour)], dim=1)
    linear = noisy @ least_squares(noisy[task.train], clean[task.train])
    affine = with_constant @ least_squares(with_constant[task.train], clean[task.train])
    mean, centred = clean[task.train].mean(dim=0), (clean - clean[task.train].mean(dim=0))[task.train]
    covariance = centred.T @ centred / len(task.train)
    level = float(task.details["noise_kelvin"])
    noise = level**2 * torch.eye(len(covariance), dtype=torch.float64)
    wiener = mean + (noisy - mean) @ torch.linalg.solve(covariance + noise, covariance)
    answers = {
        "leave the noise in": noisy,
        "mean of the hour over stations + station offset": mean_of_hour + offset,
        "centralised linear least squares on all stations": linear,
        "centralised linear least squares on all stations, with a constant": affine,
        "centralised Wiener filter": wiener,
        "Wiener filter of each neighbourhood": mean + (noisy - mean) @ local_filter(covariance, level, task.graph).T,
    }
    return {name: score_on_test(task, answer.unsqueeze(-1)) for name, answer in answers.items()}


def prepared_baselines(task: Task, preparation: str, _: int) -> dict[str, float]:
    """The local estimate, corrected by a constant."""
    return {"local estimate alone": constant_answer(task)} if preparation == "local-estimate" else {}


def with_local_estimate(task: Task, copies: int = 12) -> Task:
    r"""A denoising task in which stations start from the best linear estimate of their neighbourhood.

    Let :math:`x_i` be the noisy and :math:`y_i` the true temperature of station i, and :math:`\sigma^2` the variance
    of the noise. In the training hours station i has the mean :math:`m_i` and the covariances :math:`C_{ij}`. With its
    closed neighbourhood :math:`\mathcal{N} = \mathcal{N}_i \cup \{i\}` it estimates its own deviation from the mean,

    .. math:: w_i = \ell_i^\top (x - m)_\mathcal{N}, \qquad
              \ell_i = (C_{\mathcal{N}\mathcal{N}} + \sigma^2 I)^{-1} C_{\mathcal{N} i},

    the local Wiener filter: no other linear function of what it receives has a smaller expected squared error in the
    training hours. Learning it takes one exchange of training data with the neighbours, applying it one exchange of
    measurements. The four input features of a station are

    .. math:: \frac{x_i - m_i}{u}, \qquad \frac{w_i}{u}, \qquad \frac{s_i - s}{u_s}, \qquad \frac{m_i}{u_m},

    with its standard deviation :math:`s_i = \sqrt{C_{ii}}` and the fixed numbers :math:`u = s = 2.5` K,
    :math:`u_s = u_m = 1` K. A feature is thus about as large as 1, and depends on the station and its neighbours alone.

    The target is what the estimate leaves to be done, :math:`y_i - m_i - w_i`. A network that answers r has estimated
    the temperature :math:`m_i + w_i + r_i`, so its error and the RMSE stay in kelvin, comparable with those of the task
    as it was; the answer zero is the local estimate alone.

    Further copies of the training hours, each with fresh noise of the variance :math:`\sigma^2`, follow the samples of
    the task. Validation and test hours take part in none of this but with their own features. The graph stays.

    Args:
        task: a task made by :func:`~graphact_lab.tasks.denoising`.
        copies: how many further noisy copies of the training hours there are to learn from; their noise depends on
            split and seed of the task.

    Shapes:
        M hours become ``M + copies * len(task.train)`` samples; inputs ``(M, N, 1)`` become ``(..., N, 4)``.

    Raises:
        ValueError: the task is not a denoising task, holds local estimates already, or has other noise than it says.
    """
    if task.name != NAME:
        raise ValueError(f"task must be a denoising task, got {task.name!r}")
    if task.details.get("local_estimate"):
        raise ValueError("task must hold measurements as they are, got one that holds local estimates already")
    if task.inputs.size(-1) != 1:
        raise ValueError(f"task must have one input feature, got {task.inputs.size(-1)}")
    if missing := {"split", "seed", "noise_kelvin"} - task.details.keys():
        raise ValueError(f"task.details must name split, seed and noise_kelvin, got none for {sorted(missing)}")
    check_integer("copies", copies, minimum=0)
    exact = task.to("cpu", torch.float64)
    noise = noise_level(exact)
    mean = exact.targets[exact.train].mean(dim=0).squeeze(-1)
    noisy, clean = exact.inputs.squeeze(-1) - mean, exact.targets.squeeze(-1) - mean
    known = clean[exact.train]
    covariance = known.T @ known / len(known)

    # the noise of the copies belongs to the seed and the split of the task
    generator = data_generator(f"{NAME} copies", task.details["seed"], task.details["split"])
    fresh = known + noise * torch.randn((copies, *known.shape), dtype=torch.float64, generator=generator)
    copied = torch.arange(len(noisy), len(noisy) + copies * len(known))
    noisy = torch.cat([noisy, fresh.flatten(0, 1)])
    clean = torch.cat([clean, known.repeat(copies, 1)])

    estimate = noisy @ local_filter(covariance, noise, exact.graph).T
    spread = (covariance.diagonal().sqrt() - TYPICAL_SPREAD) / SPREAD_UNIT
    features = [noisy / TEMPERATURE_UNIT, estimate / TEMPERATURE_UNIT, spread.expand_as(noisy)]
    features.append((mean / MEAN_UNIT).expand_as(noisy))
    return replace(
        task,
        inputs=torch.stack(features, dim=-1).to(task.inputs),
        targets=(clean - estimate).unsqueeze(-1).to(task.targets),
        train=torch.cat([task.train, copied.to(task.train)]),
        details={**task.details, "local_estimate": True, "noisy_copies": copies, "channels": list(CHANNELS)},
    )


def local_filter(covariance: Tensor, noise: float, graph: Graph) -> Tensor:
    """The matrix ``(N, N)`` whose row i holds the weights that station i gives to itself and its neighbours.

    ``covariance`` is that of the true signal, ``noise`` the standard deviation of the white noise. The weights of the
    graph do not matter.

    Example:
        Three nodes on a path: the first and the third are not neighbours.

        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> local_filter(torch.ones(3, 3), 1.0, path)
        tensor([[0.3333, 0.3333, 0.0000],
                [0.2500, 0.2500, 0.2500],
                [0.0000, 0.3333, 0.3333]])
    """
    weights = torch.zeros_like(covariance)
    for nodes, members in graph.hop_pattern(1, closed=True).tables():
        heard = covariance[members.unsqueeze(2), members.unsqueeze(1)]
        wanted = covariance[members, nodes.unsqueeze(1)]
        noisy = heard + noise**2 * torch.eye(members.size(1), dtype=covariance.dtype)
        weights[nodes.unsqueeze(1), members] = torch.linalg.solve(noisy, wanted)
    return weights


def noise_level(task: Task) -> float:
    """The standard deviation of the noise as the task states it, if the training hours agree."""
    stated = float(task.details["noise_kelvin"])
    measured = (task.inputs - task.targets)[task.train].square().mean().sqrt().item()
    if not abs(measured - stated) < NOISE_TOLERANCE * stated:
        raise ValueError(
            f"task.details['noise_kelvin'] must be positive and agree to {NOISE_TOLERANCE:.0%} with the noise of the "
            f"training hours, {measured:.4g} K, got {stated:.4g}"
        )
    return stated
