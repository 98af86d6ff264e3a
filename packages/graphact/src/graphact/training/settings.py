"""Settings of training."""

from dataclasses import dataclass

from graphact._checks import check_choice, check_integer, check_keywords, check_positive

SCHEDULES = ("constant", "cosine")


@check_keywords
@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training run; the defaults are the paper's.

    Attributes:
        epochs: passes over the training samples.
        batch_size: samples in a step.
        learning_rate: step size of Adam.
        betas: forgetting factors of Adam.
        patience: stop a model after this many epochs without a better validation metric; None never stops.
        schedule: "constant", or "cosine" for a step size that falls along half a cosine wave, epoch by epoch.
        weight_decay: decoupled decay (AdamW) of all parameters but biases.
    """

    epochs: int = 400
    batch_size: int = 100
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    patience: int | None = None
    schedule: str = "constant"
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_integer("epochs", self.epochs, minimum=1)
        check_integer("batch_size", self.batch_size, minimum=1)
        check_positive("learning_rate", self.learning_rate)
        check_choice("schedule", self.schedule, SCHEDULES)
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay must be a number from 0, got {self.weight_decay}")
        if self.patience is not None:
            check_integer("patience", self.patience, minimum=1)
