"""Robustness as an experiment: what trained node classifiers keep of their accuracy on perturbed graphs."""

from dataclasses import replace
from functools import partial

from graphact._lazy import Imported
from graphact.training.settings import TrainingSettings
from graphact_lab.descriptions import Experiment, Measure, Variation
from graphact_lab.protocols import RIVALS, Protocol

LEVELS = ("none", *(f"{kind} {share} %" for kind in ("attack", "edges", "words") for share in (5, 10, 25)))
# Test nodes over all others, as in node classification
OVERLAP = {"cora": 1000 / 1708, "citeseer": 1000 / 2312, "pubmed": 1000 / 18717}

CORA = Protocol(
    experiment="robustness",
    preset="full",
    name="cora",
    methods=(
        *("relu", "tanh", "prelu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga", "trimmed-mean-ga"),
        *RIVALS,
    ),
    features=(64,),
    orders=(1,),
    hops=(1,),
    layers=2,
    splits=5,
    conditions=({"perturbation": "none"},),
    rates=(1e-2,),
    decays=(5e-4,),
    dropouts=(0.5,),
    start="zero",
    task_options={"shares": (5, 10, 25), "steps": 125, "block": 50_000},
    training=TrainingSettings(epochs=300, batch_size=1, learning_rate=1e-2, patience=100),
)
# A minute on two CPU cores
QUICK = replace(
    CORA,
    preset="quick",
    methods=("relu", "median-ga", "soft-median-gcn"),
    splits=2,
    task_options={"shares": (10,), "steps": 20, "block": 5_000},
    training=TrainingSettings(epochs=60, batch_size=1, learning_rate=1e-2, patience=20),
)

EXPERIMENT = Experiment(
    name="robustness",
    title="Robustness",
    explanation=(
        "{layers}-layer GCNs, trained on clean graphs, classify nodes of perturbed ones. Attack: edges that an "
        "attacker with access to the network flips (PRBCD, Geisler et al. 2021), on all test nodes at once; each "
        "network meets the attack that was made for it and one that was made for a further ReLU network on the same "
        "split, and the worse counts. Edges: as many are flipped at random, half of them removed, half added. Words: "
        "a share of the words of all documents is replaced by random ones.",
        "A maximum or median has no gradient with respect to whether an edge is there, so an attack sees them through "
        "the shifts alone, or as a GCN sees them: their figures are upper bounds. MedianGCN and Soft Median are robust "
        "convolutions with ReLU.",
    ),
    measure=Measure("accuracy", "Test accuracy (%)", 1, True, " %", (0.0, 100.0)),
    protocols=(CORA, replace(CORA, name="citeseer"), QUICK),
    default_protocol="cora",
    train_cell=Imported("graphact_lab.experiments.robustness.task:train_cell"),
    dataset="planetoid",
    make_tables=partial(Imported("graphact_lab.report.sections:benchmark"), overlaps=OVERLAP, levels=LEVELS),
    variation=Variation("perturbation"),
    task_options=("shares", "steps", "block"),
)
