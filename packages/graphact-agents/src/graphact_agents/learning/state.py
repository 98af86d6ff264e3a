"""The state of a node that learns, and its file."""

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphact_agents.disk import one_line, write_atomically
from graphact_agents.messages import Array
from graphact_agents.model import Model

VERSION = 1


@dataclass(frozen=True)
class State:
    r"""The state of one node between two steps; P parameters, d neighbours.

    It is never changed, only replaced as a whole, so that whatever moment a crash falls into, a node goes on from a
    state that it has had. For push-pull that is enough. With :math:`y_i` the tracker of node i, :math:`g_i` its
    gradient, :math:`\sigma_{ji}` the sum of all that j has ever given away to i and :math:`\rho_{ij}` how much of it i
    has taken,

    .. math:: \sum_i \Big( y_i + \sum_j (\sigma_{ji} - \rho_{ij}) \Big) = \sum_i g_i

    holds for any choice of one earlier state for each node: the sums are sent as a whole and not by their increments.
    A node that forgets its sums breaks it for good.

    Attributes:
        steps: how many steps this node has made.
        parameters: ``(P,)``, its copy of the parameters.
        tracker: ``(P,)``, its estimate of the mean gradient.
        gradient: ``(P,)``, its gradient in the last step.
        given: ``(d, P)``, running sums of what it gave away to each neighbour.
        taken: ``(d, P)``, how much of what each neighbour gave away it has taken.
        first_moment: ``(P,)``, of Adam.
        second_moment: ``(P,)``, of Adam.
    """

    steps: int
    parameters: Array
    tracker: Array
    gradient: Array
    given: Array
    taken: Array
    first_moment: Array
    second_moment: Array

    @classmethod
    def first(cls, parameters: Array, neighbors: int) -> "State":
        nothing, sums = np.zeros_like(parameters), np.zeros((neighbors, len(parameters)))
        return cls(0, parameters, nothing, nothing, sums, sums, nothing, nothing)

    def to_arrays(self) -> dict[str, Array]:
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "State":
        values = {field.name: arrays[field.name] for field in fields(cls)}
        return cls(int(values.pop("steps")), **values)

    def save(self, path: str | os.PathLike[str]) -> None:
        save_arrays(path, {"version": np.asarray(VERSION), **self.to_arrays()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "State":
        """Read a file; ValueError if it is damaged or not a state."""
        try:
            with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as content:
                state, version = cls.from_arrays(content), int(content["version"])
        except Exception as error:  # of many classes, for a damaged file
            raise ValueError(f"{path}: not the state of a node that learns: {one_line(error)}") from error
        if version != VERSION:
            raise ValueError(f"{path}: must be a state of version {VERSION}, got {version}")
        return state


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file that is complete or, if writing was interrupted, the one before."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(Path(path), content.getvalue())


def to_vector(parameters: Mapping[str, Array], model: Model) -> Array:
    """All parameters that learning changes as one vector of float64, layer by layer."""
    return np.concatenate([np.asarray(parameters[name], np.float64).ravel() for name in model.trained])


def from_vector(vector: Array, model: Model) -> Model:
    """The model with the parameters of a vector; frozen ones as they are."""
    sizes = [model.parameters[name].size for name in model.trained]
    pieces = zip(model.trained, np.split(vector, np.cumsum(sizes)[:-1]), strict=True)
    changed = {name: piece.reshape(model.parameters[name].shape).astype(model.dtype) for name, piece in pieces}
    return replace(model, parameters={name: changed.get(name, value) for name, value in model.parameters.items()})
