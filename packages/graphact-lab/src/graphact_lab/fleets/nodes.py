"""Fleets of node classifiers: many models on one graph, which differ in split, seed, rate, decay and dropout.

An epoch is one step on all training nodes. Everything of it stays on the device: the masks of dropout, Adam, the scores
of the validation nodes, the best parameters so far and the count of epochs without a better score. The host looks at
the scores rarely, and on a GPU an epoch is one CUDA graph.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer
from graphact.training.fleet import FleetResult
from graphact.training.loop import WARM_UP_STEPS
from graphact.training.threads import timed
from graphact_lab.fleets.active import ActiveModels, State
from graphact_lab.fleets.features import SparseFeatures
from graphact_lab.splits import Split

METRICS = ("accuracy", "roc_auc")
PARTS = ("train", "validation", "test")
LOOK_EVERY = {"cuda": 50, "cpu": 10}  # epochs between looks at the scores
# Numbers in a pass over edges and nodes from which on it pays to record an epoch again for fewer models
WORTH = {"cuda": 10**8, "cpu": 0}


class NodeFleet:
    """R node classifiers of one shape on one graph, trained together, each as if it were alone.

    A model is called as ``model(x, graph, masks)`` and returns logits ``(N, C)``; ``masks`` are the masks of dropout
    ``(N, width)``, one for each of ``model.dropout_widths``, and none of them in evaluation. The width None stands for
    the features, and where these are sparse, their mask has an entry for each of their values. Where
    ``model.dropped_last`` is true, nothing before the last mask depends on the mode, and ``model(x, graph, masks,
    True)`` returns the logits with and without dropout, which halves the work.

    Args:
        models: modules with parameters of equal names and shapes; one may stand at several places.
        x: features ``(N, F)``, dense or sparse, handed to the models as they are.
        graph: whatever the models take as the graph, with ``to(device, dtype)`` and ``num_edges``.
        labels: ``(N,)``.
        splits: one for each model.
        seeds: one for each model; they decide which units are dropped.
        rates, decays, dropouts: one for each model; the decay is that of the L2 penalty (Adam, not AdamW).
        metric: "accuracy" (in percent) or "roc_auc" (in percent, of two classes).
        is_decayed: which parameters the decay concerns, by name; weights outside of activations and norms when left
            out.
        device, dtype: where and in which precision.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        x: Tensor | SparseFeatures,
        graph: Any,
        labels: Tensor,
        splits: Sequence[Split],
        *,
        seeds: Sequence[int],
        rates: Sequence[float],
        decays: Sequence[float],
        dropouts: Sequence[float],
        metric: str = "accuracy",
        is_decayed: Callable[[str], bool] | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        given = {"splits": splits, "seeds": seeds, "rates": rates, "decays": decays, "dropouts": dropouts}
        for name, values in given.items():
            if len(values) != len(models):
                raise ValueError(f"{name} must have one entry for each of the {len(models)} models, got {len(values)}")
        self.metric, self.num_nodes = check_choice("metric", metric, METRICS), len(labels)
        self.template: Any = copy.deepcopy(models[0]).to(device, dtype)
        self.x, self.graph, self.labels = x.to(device, dtype), graph.to(device, dtype), labels.to(device)

        def numbers(values: Sequence[float]) -> Tensor:
            return torch.tensor(list(values), dtype=torch.float64, device=device).to(dtype)

        trained = {name for name, parameter in models[0].named_parameters() if parameter.requires_grad}
        state = {
            name: torch.stack([dict(named(model))[name].detach() for model in models]) for name, _ in named(models[0])
        }
        state = {name: t.to(device, dtype if t.is_floating_point() else None) for name, t in state.items()}
        self.running = ActiveModels(
            parameters={name: state[name].requires_grad_() for name in state if name in trained},
            buffers={name: state[name] for name in state if name not in trained},
            seeds=torch.tensor(list(seeds), device=device),
            rates=numbers(rates),
            decays=numbers(decays),
            dropouts=numbers(dropouts),
            nodes={part: pad([split[place] for split in splits]).to(device) for place, part in enumerate(PARTS)},
            counts={part: numbers([len(split[place]) for split in splits]) for place, part in enumerate(PARTS)},
        )
        is_decayed = is_decayed or (
            lambda name: name.endswith("weight") and not any(part in name for part in ("activation", "norm"))
        )
        self.decayed = {name for name in trained if is_decayed(name)}
        self.best: list[State | None] = [None] * len(models)
        self.recording = "plain"

    def __len__(self) -> int:
        return len(self.best)

    @property
    def work(self) -> int:
        """Numbers in a pass of one model over edges and nodes."""
        widths: tuple[int | None, ...] = self.template.dropout_widths
        return int(self.num_nodes + self.graph.num_edges) * sum(width or 0 for width in widths)

    def mask_shape(self, width: int | None) -> tuple[int, ...]:
        """The shape of a mask of dropout of one model."""
        if width is not None:
            return self.num_nodes, width
        return (self.x.count,) if isinstance(self.x, SparseFeatures) else (self.num_nodes, self.x.size(1))

    def train(
        self, epochs: int, patience: int | None = None, *, keep: bool = True, window: int | None = None
    ) -> FleetResult:
        """Train all models; each stops after ``patience`` epochs without a better validation score.

        The test score is that at the first epoch with the best validation score; with ``keep``, :meth:`model` gives
        the models as they were then. With a ``window``, in the place of patience, a model stops when its loss on the
        validation nodes, penalty included, is above the mean of those of so many epochs before, and it is tested as it
        is then, or after the last epoch (Kipf and Welling 2017, as in their code).
        """
        check_integer("epochs", epochs, minimum=1)
        if window is not None and patience is not None:
            raise ValueError(f"patience must be None where a window is given, got {patience}")
        running, device = self.running, self.running.seeds.device
        running.begin(epochs if patience is None else check_integer("patience", patience, minimum=1), keep, window)
        found: list[Any] = [None] * len(self)
        places, done, look_every = list(range(len(self))), 0, LOOK_EVERY[device.type]
        step = timed(self.make_step(running))
        while done < epochs and places:
            for _ in range(min(look_every, epochs - done)):
                step()
            done += min(look_every, epochs - done)
            waiting = running.is_waiting().tolist()
            is_worth = len(places) * self.work >= WORTH[device.type] and sum(waiting) <= len(places) // 2
            if done < epochs and (is_worth or not any(waiting)):  # those that are done leave the stack
                self.collect(running, places, waiting, found)
                chosen = [number for number, waits in enumerate(waiting) if waits]
                places = [places[number] for number in chosen]
                running = running.rows(torch.tensor(chosen, dtype=torch.int64, device=device))
                step = self.make_step(running)
        if places:
            self.note(running, self.evaluate(running))
            self.collect(running, places, [False] * len(places), found)
        test, validation, best_epoch = (list(column) for column in zip(*found, strict=True))
        return FleetResult(test, validation, best_epoch)

    def model(self, number: int) -> nn.Module:
        """A copy of one model as it was at its best epoch."""
        state = self.best[number]
        if state is None:
            raise ValueError("models must have been trained with keep=True")
        made: nn.Module = copy.deepcopy(self.template)
        made.load_state_dict(state)
        return made.eval()

    def make_step(
        self, running: ActiveModels, epoch: Callable[[ActiveModels], None] | None = None, warm_up: int = WARM_UP_STEPS
    ) -> Callable[[], None]:
        """One epoch, as a function without arguments; on a GPU recorded after a few calls, and then replayed."""
        epoch = epoch or self.epoch
        recorded: list[torch.cuda.CUDAGraph] = []
        calls = 0

        def step() -> None:
            nonlocal calls
            calls += 1
            if running.seeds.device.type != "cuda":
                epoch(running)
            elif recorded:
                recorded[0].replay()
            elif calls <= warm_up:
                stream = torch.cuda.Stream()  # recording demands that the steps before it ran outside the default one
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    epoch(running)
                torch.cuda.current_stream().wait_stream(stream)
            elif self.recording.startswith("not recorded"):
                epoch(running)
            else:
                graph = torch.cuda.CUDAGraph()
                try:
                    with torch.cuda.graph(graph):  # recording runs nothing
                        epoch(running)
                except torch.OutOfMemoryError:  # fewer models at a time may fit
                    raise
                except RuntimeError as error:  # some step waits for the device: every epoch is launched again
                    self.recording = f"not recorded: {[*str(error).splitlines(), ''][0]}"
                    torch.cuda.synchronize()
                    epoch(running)
                    return
                self.recording = "recorded"
                recorded.append(graph)
                graph.replay()

        return step

    def epoch(self, running: ActiveModels) -> None:
        """Score the models as they are, and move them by one step."""
        masks = {
            f"mask{site}": running.masks(site, self.mask_shape(width))
            for site, width in enumerate(self.template.dropout_widths)
        }
        if self.template.dropped_last:
            logits, evaluated = self.call(running, masks, True, both=True)
        else:
            evaluated = self.evaluate(running)
        self.note(running, evaluated.detach())
        if not self.template.dropped_last:  # buffers change after the selection
            logits = self.call(running, masks, True)
        running.steps.add_(1)
        self.update(running, self.losses(running, logits))

    def update(self, running: ActiveModels, losses: Tensor) -> None:
        """One step of Adam for each model, on its own loss."""
        parameters = list(running.parameters.values())
        grads = torch.autograd.grad(losses.sum(), parameters, allow_unused=True)
        running.adam(dict(zip(running.parameters, grads, strict=True)), self.decayed)

    @torch.no_grad()
    def evaluate(self, running: ActiveModels) -> Tensor:
        """The logits ``(R, N, C)`` of all models without dropout."""
        logits: Tensor = self.call(running, {}, False)
        return logits

    def note(self, running: ActiveModels, logits: Tensor) -> None:
        """Score the models as they are, and keep those that are better than before."""
        scores = self.scores(running, logits)
        if running.losses is None:
            running.select(scores)
        else:
            running.follow(scores, self.penalized(running, logits))

    def call(
        self,
        running: ActiveModels,
        masks: State,
        training: bool,
        *,
        both: bool = False,
        read: tuple[Any, Any] | None = None,
    ) -> Any:
        """The logits ``(R, N, C)`` of all models; in training, buffers such as running means move along.

        ``read`` are features and graph where they are not all of them.
        """
        self.template.train(training)
        x, graph = read or (self.x, self.graph)
        options = (True,) if both else ()

        def run(parameters: State, buffers: State, masks: State) -> tuple[Any, State]:
            state = {**parameters, **buffers}
            arguments = (x, graph, list(masks.values()), *options)
            return torch.func.functional_call(self.template, state, arguments), {name: state[name] for name in buffers}

        logits, buffers = torch.vmap(run)(running.parameters, running.buffers, masks)
        if training:
            for name, buffer in running.buffers.items():
                buffer.copy_(buffers[name].detach())
        return logits

    def losses(self, running: ActiveModels, logits: Tensor) -> Tensor:
        """The cross entropy ``(R,)`` of each model on its training nodes."""
        return self.cross_entropies(running, logits, "train")

    def penalized(self, running: ActiveModels, logits: Tensor) -> Tensor:
        """The cross entropy ``(R,)`` of each model on its validation nodes, with its L2 penalty."""
        penalties = [running.parameters[name].detach().square().flatten(1).sum(1) for name in sorted(self.decayed)]
        penalty = torch.stack(penalties).sum(0) if penalties else torch.zeros_like(running.decays)
        return self.cross_entropies(running, logits, "validation") + 0.5 * running.decays * penalty

    def cross_entropies(self, running: ActiveModels, logits: Tensor, part: str) -> Tensor:
        """The mean cross entropy ``(R,)`` of each model on its nodes of one part."""
        nodes = running.nodes[part]
        chosen = logits.gather(1, nodes.clamp(min=0).unsqueeze(-1).expand(-1, -1, logits.size(-1)))
        targets = self.labels[nodes.clamp(min=0)].masked_fill(nodes < 0, -100)  # which cross_entropy ignores
        each = F.cross_entropy(chosen.flatten(0, 1), targets.flatten(), reduction="none").view(nodes.shape)
        return each.sum(1) / running.counts[part]

    def scores(self, running: ActiveModels, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The metric ``(R,)`` on validation and test nodes; NaN where a logit is not finite."""
        score = accuracy if self.metric == "accuracy" else roc_auc
        lost = ~logits.isfinite().flatten(1).all(1)
        found = (score(logits, self.labels, running.nodes[part], running.counts[part]) for part in PARTS[1:])
        validation, test = (value.double().masked_fill(lost, torch.nan) for value in found)
        return validation, test

    def collect(self, running: ActiveModels, places: list[int], waiting: list[bool], found: list[Any]) -> None:
        """Take the results of the models that are done."""
        rows = zip(running.best_test.tolist(), running.best.tolist(), running.best_epoch.tolist(), strict=True)
        for number, (place, result) in enumerate(zip(places, rows, strict=True)):
            if not waiting[number]:
                found[place] = result
                if running.kept:
                    self.best[place] = {name: tensor[number].clone() for name, tensor in running.kept.items()}


def accuracy(logits: Tensor, labels: Tensor, nodes: Tensor, counts: Tensor) -> Tensor:
    """The share of nodes ``(R, n)`` whose largest logit is that of their class, in percent; nodes below 0 are none."""
    right = (logits.argmax(-1) == labels).gather(1, nodes.clamp(min=0)) & (nodes >= 0)
    return 100 * right.sum(1) / counts.double()


def roc_auc(logits: Tensor, labels: Tensor, nodes: Tensor, counts: Tensor) -> Tensor:
    """The chance that a node of class 1 has a larger score than one of class 0, ties by half, in percent."""
    del counts
    none, target = nodes < 0, labels[nodes.clamp(min=0)]
    score = (logits[..., 1] - logits[..., 0]).gather(1, nodes.clamp(min=0)).masked_fill(none, torch.inf).contiguous()
    ordered = score.sort(1).values
    rank = (torch.searchsorted(ordered, score) + torch.searchsorted(ordered, score, right=True) + 1).double() / 2
    positive = (target == 1) & ~none
    ones, zeros = positive.sum(1).double(), ((target == 0) & ~none).sum(1).double()
    return 100 * ((rank * positive).sum(1) - ones * (ones + 1) / 2) / (ones * zeros)


def pad(parts: Sequence[Tensor]) -> Tensor:
    """Index tensors of several lengths side by side, filled up with -1."""
    return nn.utils.rnn.pad_sequence(list(parts), batch_first=True, padding_value=-1)


def named(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers by name."""
    return [*model.named_parameters(), *model.named_buffers()]
