"""Settings of runs in sentences, and where they are not those of the paper."""

import string
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

import pandas as pd

from graphact.training.settings import TrainingSettings
from graphact_lab.protocol import REPLICAS, Protocol, TrainingJob
from graphact_lab.registry import Experiment
from graphact_lab.rows import in_words

# Settings that change neither the problem nor a network of a table: names, what lines and columns stand for, how many
# runs there are, and what trained networks are evaluated on besides
APART = {
    *("experiment", "protocol", "method", "hops", "features", "order", "condition", "seed", "data_seed", *REPLICAS),
    *("loss_probabilities", "loss_realizations"),
}
USUAL = {item.name: item.default for kind in (Protocol, TrainingSettings) for item in fields(kind)}
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

Settings = dict[str, Any]
Departures = dict[str, tuple[list[str], str]]  # by setting: the values of the runs, and that of the paper, in words


def settings_of(given: Mapping[str, Any], experiment: Experiment) -> Settings:
    """Settings as a row has them, with the options of its tasks among them and what is not given as it usually is."""
    usual = {name: value for name, value in USUAL.items() if value is not MISSING}
    return {**usual, **experiment.usual_options, **given, **given.get("task_options", {})}


def settings_of_protocol(protocol: Protocol, experiment: Experiment) -> Settings:
    """The settings of a protocol, as its rows have them."""
    job = TrainingJob(protocol, protocol.methods[0], None, protocol.features[0], protocol.orders[0], seed=0)
    return settings_of(job.settings(), experiment)


def given_in(runs: pd.DataFrame) -> Iterator[Mapping[str, Any]]:
    """The settings of the networks among runs, each once; none of rows that tell none."""
    networks = runs[runs.kind == "model"]
    yield from (given for given in networks.drop_duplicates("settings").given if given)


def departures(runs: pd.DataFrame, experiment: Experiment) -> Departures:
    """Where runs of one protocol have other settings than the paper; empty where they have its settings.

    Each run is held against the reading of the paper (a protocol of the preset "paper") that is nearest, of those with
    the name of its protocol if there are some.
    """
    ignored = APART | {"task_options"}
    readings = [one for one in experiment.protocols if one.preset == "paper"]
    own = [one for one in readings if one.name == runs.protocol.iloc[0]]
    known = [settings_of_protocol(one, experiment) for one in own or readings]
    found: Departures = {}
    for settings in (settings_of(given, experiment) for given in given_in(runs)) if known else ():
        changes = [
            {
                name: in_words(paper.get(name))
                for name in sorted((settings.keys() | paper.keys()) - ignored)
                if in_words(settings.get(name)) != in_words(paper.get(name))
            }
            for paper in known
        ]
        for name, usual in min(changes, key=len).items():
            values, _ = found.setdefault(name, ([], usual))
            if (value := in_words(settings.get(name))) not in values:
                values.append(value)
    return found


def departures_in_words(found: Departures) -> str:
    """Departures as part of a sentence.

    Example:
        >>> departures_in_words({"communities": (["3"], "4"), "learning_rate": (["0.1", "0.2"], "0.001")})
        'communities 3 instead of 4, learning rate 0.1 or 0.2 instead of 0.001'
    """
    return ", ".join(
        f"{name.replace('_', ' ')} {' or '.join(values)} instead of {usual}" for name, (values, usual) in found.items()
    )


def explanation_of(experiment: Experiment, runs: pd.DataFrame) -> list[str]:
    """The paragraphs of an experiment with the settings of its runs in the places of their names."""
    usual = settings_of_protocol(experiment.protocols[0], experiment)
    known = [settings_of(given, experiment) for given in given_in(runs)] or [usual]
    paragraphs = []
    for text in experiment.explanation:
        names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
        words = {name: alternatives(settings[name] for settings in known) for name in names}
        filled = text.format(**words)
        paragraphs.append(filled[:1].upper() + filled[1:])
    return paragraphs


def alternatives(values: Any) -> str:
    """Whole numbers in words, each once.

    Example:
        >>> alternatives([20, 3, 3])
        'three or 20'
    """
    return " or ".join(COUNTS[value] if 0 <= value < len(COUNTS) else f"{value:,}" for value in sorted(set(values)))
