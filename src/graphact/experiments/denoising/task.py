"""Temperatures of weather stations from noisy measurements: the task, and what simple methods achieve."""

from collections.abc import Sequence
from pathlib import Path

import torch

from graphact._checks import check_integer
from graphact.data import Task
from graphact.data.datasets.download import PathLike, locate
from graphact.data.datasets.molene import Temperatures, kilometres_of, read_molene
from graphact.data.splits import eighty_ten_ten, generator_for
from graphact.experiments.baselines import constant_answer, least_squares, score_on_test
from graphact.experiments.protocol import Condition, Protocol
from graphact.graph import Graph

NAME = "denoising"
NEIGHBORS = 10


def denoising(
    split: int = 0,
    seed: int = 0,
    *,
    snr_db: float = 3.0,
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
    :math:`P \cdot 10^{-\text{SNR}/10}`, where P is the mean of :math:`x_i^2` over all stations and hours. The same
    noise, scaled, serves all values of ``snr_db``.

    Args:
        split: number of the split; split and noise depend on it and on the seed.
        seed: seed of all randomness.
        snr_db: signal-to-noise ratio in decibel.
        directory: data directory; see :func:`~graphact.tasks.locate`.
        download: whether missing data may be downloaded.
        dtype: floating-point type of graph, signals and targets.

    Raises:
        DataError: the data is missing or damaged.
    """
    temperatures = read_molene(locate("molene", directory, download))
    return noisy_hours(temperatures, station_graph(temperatures), split, seed, snr_db, dtype)


def denoising_tasks(
    splits: int = 20,
    seed: int = 0,
    *,
    snrs_db: Sequence[float] = (3.0,),
    directory: PathLike | None = None,
    download: bool = True,
    dtype: torch.dtype = torch.float32,
) -> list[Task]:
    """All tasks ``denoising(split, seed, snr_db=...)``, by SNR, then split; they share the graph, and one reading."""
    temperatures = read_molene(locate("molene", directory, download))
    graph = station_graph(temperatures)
    return [
        noisy_hours(temperatures, graph, split, seed, snr_db, dtype)
        for snr_db in snrs_db
        for split in range(check_integer("splits", splits, minimum=1))
    ]


def make_tasks(protocol: Protocol, condition: Condition, seed: int, data: Path | None) -> list[Task]:
    """The tasks of a protocol at one SNR; see :class:`~graphact.experiments.registry.Experiment`."""
    snrs_db = (condition["snr_db"],)
    return denoising_tasks(protocol.splits, seed, snrs_db=snrs_db, directory=data, **protocol.task_options)


def station_graph(temperatures: Temperatures) -> Graph:
    """The 10 nearest neighbours of each station, as a shift operator in float64."""
    kilometres = torch.from_numpy(kilometres_of(temperatures.degrees))
    return Graph.nearest_neighbors(kilometres, NEIGHBORS).normalize("spectral")


def noisy_hours(
    temperatures: Temperatures, graph: Graph, split: int, seed: int, snr_db: float, dtype: torch.dtype
) -> Task:
    """The task of one split at one signal-to-noise ratio."""
    kelvin = torch.from_numpy(temperatures.kelvin)
    parts = eighty_ten_ten(kelvin.size(0), generator_for(f"{NAME} split", seed, split))
    mean = kelvin[parts.train].mean()
    clean = (kelvin - mean).unsqueeze(-1)
    spread = (clean.square().mean() * 10 ** (-snr_db / 10)).sqrt()
    generator = generator_for(f"{NAME} noise", seed, split)
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


def simple_answers(task: Task, _: int) -> dict[str, float]:
    """Doing nothing, spatial averaging, and the best matrix from all stations to all stations."""
    noisy, clean = task.inputs.squeeze(-1), task.targets.squeeze(-1)
    mean_of_hour = noisy.mean(dim=1, keepdim=True)
    offset = (clean - mean_of_hour)[task.train].mean(dim=0)
    with_constant = torch.cat([noisy, torch.ones_like(mean_of_hour)], dim=1)
    linear = noisy @ least_squares(noisy[task.train], clean[task.train])
    affine = with_constant @ least_squares(with_constant[task.train], clean[task.train])
    mean, centred = clean[task.train].mean(dim=0), (clean - clean[task.train].mean(dim=0))[task.train]
    covariance = centred.T @ centred / len(task.train)
    noise = task.details["noise_kelvin"] ** 2 * torch.eye(len(covariance), dtype=torch.float64)
    wiener = mean + (noisy - mean) @ torch.linalg.solve(covariance + noise, covariance)
    answers = {
        "leave the noise in": noisy,
        "mean of the hour over stations + station offset": mean_of_hour + offset,
        "centralised linear least squares on all stations": linear,
        "centralised linear least squares on all stations, with a constant": affine,
        "centralised Wiener filter": wiener,
    }
    return {name: score_on_test(task, answer.unsqueeze(-1)) for name, answer in answers.items()}


def answers_of_prepared(task: Task, preparation: str, _: int) -> dict[str, float]:
    """The local estimate, corrected by a constant."""
    return {"local estimate alone": constant_answer(task)} if preparation == "local-estimate" else {}
