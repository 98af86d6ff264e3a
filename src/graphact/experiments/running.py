"""Running the cells of a protocol and writing their rows as they come."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

import torch

import graphact
from graphact.experiments.building import make_models, make_tasks, prepare_tasks, seed_of
from graphact.experiments.protocol import Cell, Protocol, cells_of, file_key
from graphact.experiments.store import Row, Store, StoreError
from graphact.nn import GraphModule
from graphact.nn.activation import MixedActivation
from graphact.tasks import Task, baselines, prepared_baselines
from graphact.tasks.preparation import OF_SIGNALS
from graphact.training import Fleet, StackedGraphs

CHECKPOINT_SECONDS = 20.0
FITTED_ORDER = 35  # of the linear filter in closed form; lower orders come out alike


class Watcher(Interface):
    """Told what is going on."""

    def plan(self, cells: int, finished: int) -> None:
        """Before anything runs: how many cells there are, and how many are finished already."""

    def start(self, title: str, epochs: int) -> None:
        """A cell begins."""

    def epoch(self, epoch: int) -> None:
        """An epoch of the cell is over."""

    def finish(self, title: str, rows: list[Row]) -> None:
        """A cell is over; these are its rows."""


class Quiet:
    """A watcher that says nothing."""

    def plan(self, cells: int, finished: int) -> None:
        """Ignore it."""

    def start(self, title: str, epochs: int) -> None:
        """Ignore it."""

    def epoch(self, epoch: int) -> None:
        """Ignore it."""

    def finish(self, title: str, rows: list[Row]) -> None:
        """Ignore it."""


def run_protocol(
    protocol: Protocol,
    store: Store,
    *,
    seed: int = 0,
    device: str = "cpu",
    data: Path | None = None,
    watcher: Watcher | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> None:
    """Run whatever is not finished yet. Cells that another process holds are left to it.

    Args:
        protocol: what to run.
        store: where the rows go.
        seed: decides everything random.
        device: where to train.
        data: folder of the data sets; see :func:`graphact.tasks.locate`.
        watcher: told what is going on.
        checkpoint_seconds: how often a half-finished cell is written to disk.
    """
    watcher = Quiet() if watcher is None else watcher
    cells = cells_of(protocol, seed)
    watcher.plan(len(cells), sum(store.is_finished(cell.key) for cell in cells))
    made_for, plain, tasks = "", list[Task](), list[Task]()
    for cell in cells:
        condition = dict(cell.condition)
        name, baseline_key = repr(sorted(condition.items())), key_of_baselines(protocol, condition, seed)
        if store.is_finished(cell.key) and store.is_finished(baseline_key):
            continue
        if name != made_for:
            made_for, plain = name, make_tasks(protocol, condition, seed, data)
            tasks = prepare_tasks(protocol, condition, plain, seed, data)
        with store.claim(baseline_key) as mine:
            if mine and not store.is_finished(baseline_key):
                store.finish(baseline_key, run_baselines(protocol, condition, plain, tasks, seed))
        with store.claim(cell.key) as mine:
            if mine and not store.is_finished(cell.key):
                watcher.start(cell.title, protocol.training.epochs)
                rows = run_cell(cell, plain, tasks, store, device, watcher.epoch, checkpoint_seconds)
                store.finish(cell.key, rows)
                watcher.finish(cell.title, rows)


def check_settings(protocol: Protocol, store: Store, seed: int) -> None:
    """Say so if the store holds a cell of this protocol that was run with other settings, by an older version perhaps.

    Raises:
        StoreError: it does; a report could not tell the two apart.
    """
    place = ("experiment", "protocol", "method", "hops", "features", "order", "condition", "seed")
    wanted = {
        tuple(str(cell.settings()[name]) for name in place): (cell.title, cell.settings())
        for cell in cells_of(protocol, seed)
    }
    for row in store.first_rows():
        settings = row.get("settings")
        if settings is None or row.get("preset") != protocol.preset:
            continue
        title, new = wanted.get(tuple(str(settings.get(name)) for name in place), ("", settings))
        for name in sorted(new.keys() | settings.keys()):
            if new.get(name) != settings.get(name):
                change = f"{name} {settings.get(name)} instead of {new.get(name)}"
                raise StoreError(
                    f"{store.directory} holds results of other settings ({title}: {change}); choose another --out"
                )


def run_cell(
    cell: Cell,
    plain: list[Task],
    tasks: list[Task],
    store: Store,
    device: str,
    on_epoch: Callable[[int], None],
    checkpoint_seconds: float,
) -> list[Row]:
    """Train the fleet of a cell and evaluate it."""
    begun = time.perf_counter()
    models = make_models(cell, tasks)
    fleet = Fleet(
        models, tasks, [seed_of("replica", cell.seed, replica) for replica in range(len(tasks))], device=device
    )
    result = fleet.train(
        cell.protocol.training,
        progress=lambda epoch, *_: on_epoch(epoch),
        checkpoint=store.checkpoint(cell.key),
        every=Timer(checkpoint_seconds),
    )
    under_loss = {p: lossy_metric(fleet, plain, p, cell) for p in cell.protocol.loss_probabilities}
    common = {
        **stamp(cell.protocol, device),
        "kind": "model",
        "method": cell.method,
        "hops": cell.hops,
        "features": cell.features,
        "order": cell.order,
        "seed": cell.seed,
        "epochs": cell.protocol.training.epochs,
        "settings": cell.settings(),
        "seconds": (result.seconds_before + time.perf_counter() - begun) / len(tasks),
    }
    rows = []
    for replica, (model, task) in enumerate(zip(models, tasks, strict=True)):
        row = {
            **common,
            **place(task),
            "condition": dict(cell.condition),
            "metric": task.metric,
            "value": result.test[replica],
            "validation": result.validation[replica],
            "best_epoch": result.best_epoch[replica],
            **learned(model),
        }
        rows.append(row)
        row = {**row, "beta": None, "weights": None}  # said once
        rows += [
            {**row, "condition": {**cell.condition, "loss_probability": p}, "value": values[replica]}
            for p, values in under_loss.items()
        ]
    return rows


def lossy_metric(fleet: Fleet, plain: list[Task], probability: float, cell: Cell) -> list[float]:
    """The test metric of each model, averaged over graphs that lost links; models on one graph lose the same ones.

    What nodes make of their signals, they then make with the links that are left.
    """
    total = torch.zeros(len(fleet), dtype=torch.float64)
    graphs = {id(task.graph): task.graph for task in plain}
    prepare = OF_SIGNALS.get(cell.protocol.preparation)
    for realization in range(cell.protocol.loss_realizations):
        thinned = {}
        for number, (key, graph) in enumerate(graphs.items()):
            generator = torch.Generator().manual_seed(seed_of("loss", cell.seed, number, realization, probability))
            thin = graph.drop_edges(probability, generator=generator)
            thinned[key] = thin.to(fleet.seeds.device, fleet.inputs.dtype)
        stacked = StackedGraphs([thinned[id(task.graph)] for task in plain])
        inputs = None
        if prepare is not None:
            owners = [plain[number] for number in fleet.first_owners()]
            signals = [(task.inputs.to(fleet.inputs), thinned[id(task.graph)]) for task in owners]
            inputs = torch.stack([prepare(signal, graph) for signal, graph in signals])
        total += fleet.metric("test", stacked, inputs).double().cpu()
    return (total / cell.protocol.loss_realizations).tolist()


def key_of_baselines(protocol: Protocol, condition: dict[str, Any], seed: int) -> str:
    """The key of the baselines of a condition."""
    settings = {
        "experiment": protocol.experiment,
        "preset": protocol.preset,
        "protocol": protocol.name,
        "condition": condition,
        "seed": seed,
        "graphs": protocol.graphs,
        "splits": protocol.splits,
        "nodes": protocol.nodes,
    }
    options = {"preparation": (protocol.preparation, "none"), "task_options": (dict(protocol.task_options), {})}
    settings |= {name: value for name, (value, usual) in options.items() if value != usual}
    return file_key("baselines", settings)


def run_baselines(
    protocol: Protocol, condition: dict[str, Any], plain: list[Task], tasks: list[Task], seed: int
) -> list[Row]:
    """The honest baselines on the same graphs and splits, also of what nodes make of their signals."""
    begun = time.perf_counter()
    figures = [
        baselines(task, order=FITTED_ORDER) | prepared_baselines(prepared, protocol.preparation, FITTED_ORDER)
        for task, prepared in zip(plain, tasks, strict=True)
    ]
    labels = {name: name.replace("FIR", f"FIR of order {FITTED_ORDER}") for name in figures[0]}
    common = {**stamp(protocol, "cpu"), "kind": "baseline", "hops": None, "features": None, "order": None, "seed": seed}
    seconds = (time.perf_counter() - begun) / len(plain)
    return [
        {
            **common,
            **place(task),
            "condition": condition,
            "method": labels[name],
            "metric": task.metric,
            "value": value,
        }
        | {"validation": None, "best_epoch": None, "epochs": None, "beta": None, "weights": None, "seconds": seconds}
        for task, figure in zip(plain, figures, strict=True)
        for name, value in figure.items()
    ]


def stamp(protocol: Protocol, device: str) -> Row:
    """What, with which versions, where and when."""
    on = torch.cuda.get_device_name() if device == "cuda" else device
    return {
        "experiment": protocol.experiment,
        "preset": protocol.preset,
        "protocol": protocol.name,
        "graphact": graphact.__version__,
        "torch": torch.__version__,
        "device": on,
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def place(task: Task) -> Row:
    """Which replica a task is."""
    return {name: task.details.get(name) for name in ("graph", "split")} | {"node": task.node, "realization": None}


def learned(model: GraphModule) -> Row:
    """The trained coefficients of the activations, layer by layer."""
    activations = [part for part in model.modules() if isinstance(part, MixedActivation)]
    if not activations:
        return {"beta": None, "weights": None}
    return {
        "beta": [part.beta.item() for part in activations],
        "weights": [part.weights.detach().view(part.hops, -1).tolist() for part in activations],
    }


class Timer:
    """Says yes at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.last = seconds, time.monotonic()

    def __call__(self) -> bool:
        """Whether it is time."""
        due = time.monotonic() - self.last >= self.seconds
        if due:
            self.last = time.monotonic()
        return due
