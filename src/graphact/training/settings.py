"""How to train."""

from dataclasses import dataclass

from graphact._checks import check_integer, check_positive


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training run; the defaults are the paper's.

    Attributes:
        epochs: passes over the training samples.
        batch_size: samples in a step.
        learning_rate: step size of Adam.
        betas: forgetting factors of Adam.
        patience: stop a model after this many epochs without a better validation metric; None never stops.
    """

    epochs: int = 400
    batch_size: int = 100
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    patience: int | None = None

    def __post_init__(self) -> None:
        check_integer("epochs", self.epochs, minimum=1)
        check_integer("batch_size", self.batch_size, minimum=1)
        check_positive("learning_rate", self.learning_rate)
        if self.patience is not None:
            check_integer("patience", self.patience, minimum=1)
