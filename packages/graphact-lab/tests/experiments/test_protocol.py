"""The protocols say what the specification says."""

from dataclasses import replace

import pytest

from graphact.registry import POINTWISE
from graphact.training import TrainingSettings
from graphact_lab.descriptions import EXPERIMENTS, PRESETS, find_protocol
from graphact_lab.protocols import changed_protocol, jobs_of


def test_table_one():
    protocol = find_protocol("source-localization", "paper", "paper")
    jobs = jobs_of(protocol, seed=0)
    assert len(jobs) == 3 * (3 + 3 * 2)
    assert (protocol.graphs, protocol.splits, protocol.nodes, protocol.layers) == (10, 10, 4, 2)
    assert protocol.training == TrainingSettings(400, 100, 1e-3, (0.9, 0.999), None)
    converged = find_protocol("source-localization", "paper", "converged")
    assert converged.training.learning_rate == 2e-2


def test_consensus():
    protocol = find_protocol("consensus", "paper")
    assert {(job.method, job.order) for job in jobs_of(protocol, 0)} == {
        (method, order)
        for method in ("relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga", "fir")
        for order in (20, 25, 30, 35)
    }
    assert (protocol.loss_probabilities[0], protocol.loss_probabilities[-1]) == (0.025, 0.15)


def test_denoising_sweeps_the_noise_at_the_lowest_order():
    jobs = jobs_of(find_protocol("denoising", "paper"), 0)
    main = [job for job in jobs if job.condition == {"snr_db": 3.0}]
    assert len(main) == 3 * 4 * 7
    assert all((job.order, job.features) == (1, 4) for job in jobs if job.condition != {"snr_db": 3.0})


def test_recommendation():
    jobs = jobs_of(find_protocol("recommendation", "paper"), 0)
    assert {job.condition["film"] for job in jobs} == {"toy-story", "contact", "return-of-the-jedi"}
    assert all(job.order + 1 == 5 and job.features == 32 and job.hops in (None, 1) for job in jobs)


def test_keys_depend_on_everything_that_decides_the_result():
    protocol = find_protocol("source-localization", "quick")
    keys = {job.key for job in jobs_of(protocol, 0)} | {job.key for job in jobs_of(protocol, 1)}
    longer = replace(protocol, training=replace(protocol.training, epochs=61))
    keys |= {job.key for job in jobs_of(longer, 0)} | {job.key for job in jobs_of(replace(protocol, bias=False), 0)}
    assert len(keys) == 4 * 9
    assert [job.key for job in jobs_of(protocol, 0)] == [job.key for job in jobs_of(protocol, 0)]


def test_options_that_are_not_used_do_not_change_keys():
    """Results of earlier versions stay valid."""
    settings = jobs_of(find_protocol("consensus", "paper"), 0)[0].settings()
    assert not {"preparation", "task_options", "later_order", "schedule", "weight_decay"} & set(settings)
    settings = jobs_of(find_protocol("consensus", "best"), 0)[0].settings()
    assert (settings["preparation"], settings["later_order"], settings["schedule"]) == ("by-centrality", 2, "cosine")


def test_preparations_are_checked():
    with pytest.raises(ValueError, match="preparation must be one of .* got 'magic'"):
        replace(find_protocol("consensus", "best"), preparation="magic")
    with pytest.raises(ValueError, match="can repeat when links are lost, got 'local-estimate' together with"):
        replace(find_protocol("consensus", "best"), preparation="local-estimate")


def test_every_experiment_has_every_preset():
    for preset in PRESETS:
        for experiment in EXPERIMENTS:
            assert jobs_of(find_protocol(experiment, preset), 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("voting",), "experiment must be one of 'source-localization', .* got 'voting'"),
        (("consensus", "huge"), "preset must be one of .* got 'huge'"),
        (("consensus", "quick", "converged"), "protocol must be one of 'paper', got 'converged'"),
        (("consensus", "quick", None, ("sinc",)), "activation must be one of .* got 'sinc'"),
    ],
)
def test_bad_names(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_protocol(*arguments)


def test_paper_is_the_text_to_the_letter():
    for experiment in EXPERIMENTS:
        paper = find_protocol(experiment, "paper", "paper")
        assert not paper.bias
        assert not paper.readout_bias
        assert (paper.training.learning_rate, paper.per_feature, paper.shift) == (1e-3, True, "adjacency")
    assert find_protocol("recommendation", "paper", "paper").task_options == {"validation_fraction": 0.0}
    assert find_protocol("denoising", "paper", "paper").task_options == {"noise_from": "training hours"}


def test_converged_compares_every_method_at_equal_hops():
    for experiment in EXPERIMENTS:
        converged = find_protocol(experiment, "paper", "converged")
        assert {*POINTWISE} - {"identity"} < {*converged.methods}
        assert converged.bias
    jobs = jobs_of(find_protocol("source-localization", "paper", "converged"), 0)
    assert {job.hops for job in jobs if job.method.endswith("-l")} == {1, 2}
    assert {job.hops for job in jobs if job.method.endswith("-ga")} == {1, 2}
    assert {job.hops for job in jobs if job.method in POINTWISE} == {None}
    assert len({job.title for job in jobs}) == len({job.key for job in jobs}) == len(jobs) == 3 * 20


def test_settings_can_be_changed_by_text():
    changes = {"features": "2,32", "hops": "1,2,3,4", "layers": "3", "learning_rate": "5e-3", "patience": "none"}
    changes |= {"p": "0.6", "shift": "laplacian", "bias": "false", "start": "small"}
    changed = find_protocol("source-localization", "paper", "converged", ("compared", "tanh", "relu"), changes)
    assert changed.methods == ("relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga", "tanh")
    assert (changed.features, changed.hops, changed.layers) == ((2, 32), (1, 2, 3, 4), 3)
    assert (changed.training.learning_rate, changed.training.patience) == (5e-3, None)
    assert (changed.task_options, changed.shift, changed.bias, changed.start) == (
        {"p": 0.6},
        "laplacian",
        False,
        "small",
    )
    settings = jobs_of(changed, 0)[0].settings()
    assert (settings["shift"], settings["task_options"], settings["layers"]) == ("laplacian", {"p": 0.6}, 3)
    assert find_protocol("denoising", "paper", "converged", (), {"sweep": ""}).sweep == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "red"}, "--set must be one of .*'batch_size'.* got 'colour'"),
        ({"name": "mine"}, "--set must be one of .* got 'name'"),
        ({"noise_from": "all hours"}, "--set must be one of .* got 'noise_from'"),
        ({"layers": "2,3"}, "--set layers must be one value, got '2,3'"),
        ({"shift": "random"}, "shift must be one of 'adjacency', .* got 'random'"),
        ({"epochs": "0"}, "epochs must be at least 1, got 0"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        find_protocol("source-localization", "paper", "converged", (), changes)


def test_other_operators_are_refused_where_links_are_lost():
    with pytest.raises(ValueError, match="shift must be 'adjacency' together with loss_probabilities"):
        find_protocol("consensus", "paper", "paper", (), {"shift": "translated"})
    for changes in (
        {"loss_probabilities": "", "shift": "translated"},
        {"shift": "translated", "loss_probabilities": ""},
    ):
        assert find_protocol("consensus", "paper", "paper", (), changes).shift == "translated"


@pytest.mark.parametrize(
    ("name", "value"), [("hops", "0"), ("localized_hops", "0"), ("features", "x"), ("orders", "-1")]
)
def test_settings_that_are_no_counts_are_named(name, value):
    with pytest.raises((TypeError, ValueError), match=f"^{name} must be"):
        changed_protocol(find_protocol("consensus", "paper"), {name: value}, ())
