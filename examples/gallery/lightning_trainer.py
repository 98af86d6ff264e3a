"""
PyTorch Lightning
=================

``GraphLearner`` is a ``LightningModule`` around any network: steps, loss, accuracy and
optimizer. Here nodes of four communities are classified from noisy features, half of
the nodes known; early stopping, checkpoints, devices and loggers are Lightning's own.
One split tells no winner.
"""

import logging
import warnings

import lightning
import matplotlib.pyplot as plt
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping
from torch_geometric.data import Data

import graphact
from graphact.lightning import GraphLearner

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # its banner
warnings.filterwarnings("ignore", ".*does not have many workers")  # one graph
warnings.filterwarnings("ignore", ".*smaller than the logging interval")
warnings.filterwarnings("ignore", ".*treespec, LeafSpec", FutureWarning)  # Lightning's

generator = torch.Generator().manual_seed(0)
blocks = {"p": 0.2, "q": 0.02, "generator": generator}
graph = graphact.Graph.stochastic_block_model([50] * 4, **blocks)
y = torch.arange(4).repeat_interleave(50)
x = torch.nn.functional.one_hot(y, 4) + 1.5 * torch.randn(200, 4, generator=generator)
# half of the nodes for training, a quarter each for validation and test
kind = torch.randint(4, (200,), generator=generator)
masks = {"train_mask": kind < 2, "val_mask": kind == 2, "test_mask": kind == 3}
data = Data(x=x, y=y, edge_index=graph.to_edge_index()[0], **masks)
loader = torch.utils.data.DataLoader([data], batch_size=None)  # the whole graph

# %%
# The trainer is the one of every other Lightning project.


class Recorder(Callback):
    """Keep what was logged after every epoch."""

    def __init__(self):
        self.accuracy = []

    def on_validation_epoch_end(self, trainer, _):
        """Called by Lightning."""
        if not trainer.sanity_checking:
            self.accuracy.append(trainer.callback_metrics["val_accuracy"].item())


curves, tests = {}, {}
for activation in ("relu", "max-ga"):
    lightning.seed_everything(0, verbose=False)
    shape = {"order": 1, "activation": activation, "out_features": 4, "bias": True}
    model = graphact.nn.GCNN([4, 16], **shape)
    learner, recorder = GraphLearner(model, learning_rate=0.01), Recorder()
    trainer = lightning.Trainer(
        max_epochs=60,
        accelerator="cpu",
        callbacks=[recorder, EarlyStopping("val_loss", patience=15)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(learner, loader, loader)
    (found,) = trainer.test(learner, loader, verbose=False)
    curves[activation], tests[activation] = recorder.accuracy, found["test_accuracy"]

# %%
plt.figure(layout="constrained")
for (activation, accuracy), style in zip(curves.items(), ("k-", "--"), strict=True):
    label = f"{activation}: {tests[activation]:.0f} % of the test nodes"
    plt.plot(range(1, len(accuracy) + 1), accuracy, style, label=label)
plt.xlabel("epoch")
plt.ylabel("validation accuracy (%)")
plt.legend()
plt.show()
