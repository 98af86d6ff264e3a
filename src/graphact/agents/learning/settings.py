"""How nodes learn together."""

from dataclasses import dataclass

from graphact._checks import check_choice, check_integer, check_positive
from graphact.agents.learning.objectives import check_objective

ALGORITHMS = ("d-psgd", "gradient-tracking", "push-pull")
OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class Learning:
    """What all nodes must agree upon before they learn.

    Args:
        algorithm: how neighbours mix; see :mod:`graphact.agents.learning.mixing`.
        optimizer: "sgd" steps along the (tracked) gradient, "adam" as :class:`torch.optim.Adam` does.
        rate: the step size.
        objective: "mse", "smooth_l1" or "cross_entropy".
        batch: samples a step; None takes all of them in every step.
        seed: decides the order of the samples, which all nodes share.
    """

    algorithm: str = "push-pull"
    optimizer: str = "adam"
    rate: float = 0.01
    objective: str = "mse"
    batch: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_positive("rate", self.rate)
        check_objective(self.objective)
        if self.batch is not None:
            check_integer("batch", self.batch, minimum=1)
        check_integer("seed", self.seed, minimum=0)
