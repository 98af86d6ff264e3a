"""A report tells of the settings that its rows were made in, and holds the paper's numbers against no others."""

import inspect
import re
from dataclasses import replace
from html import unescape

import pytest

from experiments.report.factory import baseline, row
from graphact_lab.descriptions import BENCHMARKS, EXPERIMENTS, find_experiment, find_protocol
from graphact_lab.experiments.consensus.task import BLOCKS as CONSENSUS_BLOCKS
from graphact_lab.experiments.denoising.task import denoising_tasks
from graphact_lab.experiments.recommendation.task import Options
from graphact_lab.experiments.source_localization.task import BLOCKS
from graphact_lab.protocols import jobs_of
from graphact_lab.report import terminal_table, write_report
from graphact_lab.report.rows import read_rows
from graphact_lab.report.tables import SIGNS
from graphact_lab.report.write import sections_of

LEVELS = {"recommendation": {"film": "toy-story"}, "robustness": {"perturbation": "none"}}
LEVELS |= {"node-classification": {"dataset": "cora"}, "graph-classification": {"dataset": "MUTAG"}}


def rows_of(experiment, preset="paper", protocol=None, methods=("relu", "max-ga"), **changes):
    """Two runs of each job of a protocol, with settings changed as a command changes them."""
    found = find_protocol(experiment, preset, protocol, methods, {name: str(each) for name, each in changes.items()})
    made = []
    for job in jobs_of(replace(found, conditions=found.conditions[:1], sweep=()), 0):
        names = {name: getattr(job, name) for name in ("method", "hops", "features", "order")}
        place = {"preset": preset, "protocol": found.name, "condition": LEVELS.get(experiment, {})}
        setting = {"settings": job.settings(), "epochs": found.training.epochs}
        values = [60.0, 62.0] if experiment in ("source-localization", *BENCHMARKS) else [1.0, 1.1]
        metric = {"metric": "accuracy" if experiment in BENCHMARKS else row(experiment)["metric"]}
        made += [
            row(experiment, value=value, graph=0, split=split, **names, **place, **setting, **metric)
            for split, value in enumerate(values)
        ]
    return made


def block(rows):
    ((_, (only,)),) = sections_of(read_rows(rows)).values()
    return only


def has_paper(rows):
    return any(table.has_paper for table in block(rows).content.tables)


def page_of(rows, folder):
    text = write_report(rows, folder).read_text()
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL))).split())


VARIED = {"communities": 3, "community_size": 20}


def test_three_communities_are_told_as_three_and_not_held_against_four(tmp_path):
    rows = rows_of("source-localization", "paper", "converged", **VARIED)
    rows.append(baseline("source-localization", "chance", 100 / 3, preset="paper", protocol="converged"))
    page = page_of(rows, tmp_path)
    assert "a graph with three communities" in page
    assert "right once in three times" in page
    assert "four communities" not in page
    assert "hollow" not in page
    assert "chance 33.3" in page
    for text in (page, terminal_table(rows), *(file.read_text() for file in (tmp_path / "tables").iterdir())):
        assert not set(SIGNS.values()) & set(text)
        assert "73.9" not in text
        assert ", paper" not in text
    assert "beside the published numbers" not in page
    told = (
        "Not the setting of the paper, so that its numbers do not stand beside these: communities 3 instead of 4, "
        "community size 20 instead of 10."
    )
    assert told in page
    assert told in terminal_table(rows)


@pytest.mark.parametrize("experiment", ["source-localization", "recommendation"])
def test_papers_numbers_stand_beside_every_reading_of_its_settings(experiment):
    for name in find_experiment(experiment).protocols_at("paper"):
        rows = rows_of(experiment, "paper", name)
        assert has_paper(rows), name
        assert "Not the setting" not in block(rows).caveat


@pytest.mark.parametrize(
    ("experiment", "preset", "changes", "told"),
    [
        ("source-localization", "paper", {"q": 0.3}, "q 0.3 instead of 0.1"),
        ("source-localization", "quick", {"communities": 5}, "communities 5 instead of 4"),
        ("source-localization", "quick", {}, "batch size 240 instead of 100, epochs 60 instead of 400"),
        ("source-localization", "paper", {"layers": 3}, "layers 3 instead of 2"),
        ("source-localization", "paper", {"shift": "laplacian"}, "shift laplacian instead of adjacency"),
        ("source-localization", "paper", {"epochs": 5}, "epochs 5 instead of 400"),
        (
            "source-localization",
            "paper",
            {"preparation": "local-contrast"},
            "preparation local-contrast instead of none",
        ),
        ("source-localization", "best", {}, "epochs 200 instead of 400, layers 3 instead of 2"),
        ("recommendation", "paper", {"test_fraction": 0.5}, "test fraction 0.5 instead of 0.1"),
        (
            "recommendation",
            "quick",
            {"similarity": "co-rated-variance"},
            "similarity co-rated-variance instead of pearson",
        ),
        ("recommendation", "paper", {"learning_rate": 0.5}, "learning rate 0.5 instead of"),
    ],
)
def test_other_settings_stand_alone_and_are_named(experiment, preset, changes, told):
    rows = rows_of(experiment, preset, **changes)
    assert not has_paper(rows)
    assert told in block(rows).caveat
    assert "marks" not in block(rows).caveat


@pytest.mark.parametrize(
    ("experiment", "changes"),
    [
        ("source-localization", {"communities": 4, "p": 0.8}),
        ("source-localization", {"graphs": 3, "splits": 2, "nodes": 1, "orders": 2, "features": 8}),
        ("recommendation", {"neighbors": 10, "splits": 2}),
    ],
)
def test_settings_that_are_said_again_or_count_runs_change_nothing(experiment, changes):
    assert has_paper(rows_of(experiment, "paper", **changes))


def test_one_run_of_another_setting_is_enough():
    rows = rows_of("source-localization", methods=("relu",))
    rows += rows_of("source-localization", methods=("max-ga",), communities=3)
    assert not has_paper(rows)
    assert "communities 3 instead of 4" in block(rows).caveat


def test_mixed_settings_are_both_told(tmp_path):
    rows = rows_of("source-localization", protocol="paper", features=8)
    rows += rows_of("source-localization", protocol="converged", features=8, communities=13)
    page = page_of(rows, tmp_path)
    assert "a graph with four or 13 communities" in page
    assert "right once in four or 13 times" in page


@pytest.mark.parametrize("experiment", ["consensus", "denoising"])
def test_experiments_without_a_table_of_the_paper_name_departures_too(experiment):
    assert block(rows_of(experiment)).caveat == ""
    assert "layers 3 instead of" in block(rows_of(experiment, layers=3)).caveat
    assert "its numbers" not in block(rows_of(experiment, layers=3)).caveat


@pytest.mark.parametrize(
    ("changes", "cut"),
    [
        ({}, "Preset “quick”: fewer runs and shorter training (60 epochs) than the paper's"),
        ({"epochs": 7}, "Preset “quick”: fewer runs and shorter training (7 epochs) than the paper's"),
        ({"epochs": 400}, "Preset “quick”: fewer runs than the paper's."),
        ({"epochs": 400, "batch_size": 100}, "Preset “quick”: fewer runs than the paper's: the marks do not tell"),
        ({"graphs": 10, "splits": 10, "nodes": 4}, "Preset “quick”: shorter training (60 epochs) than the paper's"),
        ({"graphs": 10, "splits": 10, "nodes": 4, "epochs": 500}, "Not the setting of the paper"),
        ({"graphs": 10, "splits": 10, "nodes": 4, "epochs": 400, "batch_size": 100}, ""),
    ],
)
def test_what_was_cut_short_is_what_was(changes, cut):
    told = block(rows_of("source-localization", "quick", "converged", **changes)).caveat
    assert told.startswith(cut)
    assert bool(told) == bool(cut)


@pytest.mark.parametrize(
    ("experiment", "changes", "told", "usual"),
    [
        ("robustness", {"layers": 3}, "Three-layer GCNs, trained", "Two-layer GCNs, trained"),
        (
            "graph-classification",
            {"splits": 4},
            "Each of four folds is tested once",
            "Each of ten folds is tested once",
        ),
    ],
)
def test_benchmarks_tell_their_settings(tmp_path, experiment, changes, told, usual):
    preset = "full"
    name = {"robustness": "cora"}.get(experiment)
    assert usual in page_of(rows_of(experiment, preset, name), tmp_path / "usual")
    page = page_of(rows_of(experiment, preset, name, **changes), tmp_path / "changed")
    assert told in page
    assert usual not in page


def test_usual_options_are_those_of_the_tasks():
    for experiment, blocks in (("source-localization", BLOCKS), ("consensus", CONSENSUS_BLOCKS)):
        assert find_experiment(experiment).usual_options == vars(blocks)
    taken = inspect.signature(denoising_tasks).parameters
    usual = {name: taken[name].default for name in find_experiment("denoising").task_options}
    assert find_experiment("denoising").usual_options == usual
    usual = {name: getattr(Options, name) for name in find_experiment("recommendation").task_options}
    assert find_experiment("recommendation").usual_options == usual
    for name in EXPERIMENTS:
        assert set(find_experiment(name).usual_options) == set(find_experiment(name).task_options)
