"""Claims judged from rows that are made to hold or not, and from the published ones against plain pandas and scipy."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from claims import CLAIMS
from evidence import Contrast, Evidence, NotRunError, Study, at, minus, settings_of
from graphact_lab.descriptions import find_protocol
from verdicts import Claim, judge, verdict_on

STUDY = Study("source-localization", "paper", "converged")
PROTOCOL = find_protocol(*STUDY)


def rows(method, values, finished="2026-01-01T00:00:00Z", validation=50.0, **setting):
    common = {"experiment": STUDY.experiment, "preset": STUDY.preset, "protocol": STUDY.protocol, "kind": "model"}
    usual = {"hops": None, "features": 8, "order": 4, "condition": {}, "seed": 0, "split": 0, "node": 3}
    return [
        {**common, **usual, "method": method, **setting, "graph": graph, "value": value}
        | {"validation": validation, "finished": finished, "settings": settings_of(PROTOCOL)}
        for graph, value in enumerate(values)
    ]


@pytest.fixture
def store(tmp_path):
    def write(name, *cells):
        folder = tmp_path / name / "rows"
        folder.mkdir(parents=True)
        for number, cell in enumerate(cells):
            (folder / f"{number}.json").write_text(json.dumps(cell))
        return Evidence(tmp_path)

    return write


def claim(*contrasts, says="above", margin=2.0, **options):
    return Claim("key", "text", "here", STUDY.experiment, contrasts, says, margin, **options)


def verdicts(evidence, *claims):
    return [one for one in judge(evidence, list(claims)) if one.study == STUDY]


LITERAL_DENOISING = Study("denoising", "paper", "paper")
NOISE = np.random.default_rng(0).normal(0, 1, 10)


def test_words_follow_the_data(store):
    evidence = store(
        "some",
        rows("relu", 50 + NOISE),
        rows("max-l", 60 + NOISE[::-1], hops=1),
        rows("max-ga", 60 + NOISE[::-1] + 0.01 * NOISE, hops=2),
        rows("median-l", 50 + 9 * NOISE[::-1], hops=1),
    )
    relu, local, adaptive, wide = at("relu"), at("max-l"), at("max-ga"), at("median-l")
    gain, none, loss, unclear = (
        minus(label, *pair)
        for label, pair in {
            "gain": (local, relu),
            "none": (adaptive, local),
            "loss": (relu, local),
            "unclear": (wide, relu),
        }.items()
    )
    expected = {
        claim(gain): "supported",
        claim(gain, bound=20.0): "contradicted",
        claim(gain, none): "in part",
        claim(gain, loss): "mixed",
        claim(none): "no difference",
        claim(none, says="within"): "supported",
        claim(gain, says="within"): "contradicted",
        claim(loss): "contradicted",
        claim(loss, says="below"): "supported",
        claim(unclear): "undecided",
        claim(minus("absent", at("tanh"), relu)): "not run",
    }
    for one, word in expected.items():
        assert verdicts(evidence, one)[0].word == word, one


def test_p_of_a_claim_is_the_largest_and_adjusted_within_its_family(store):
    evidence = store("some", rows("relu", 50 + NOISE), rows("tanh", 51 + 1.1 * NOISE[::-1]), rows("elu", 70 - NOISE))
    weak, strong = minus("weak", at("tanh"), at("relu")), minus("strong", at("elu"), at("relu"))
    one, other, apart = verdicts(
        evidence, claim(weak, strong), replace(claim(strong), key="b"), replace(claim(weak), family="other")
    )
    p = scipy.stats.ttest_rel(51 + 1.1 * NOISE[::-1], 50 + NOISE).pvalue
    q = scipy.stats.ttest_rel(70 - NOISE, 50 + NOISE).pvalue
    assert one.p == pytest.approx(p)
    assert (one.adjusted, other.adjusted) == pytest.approx((p, 2 * q))
    assert apart.adjusted == pytest.approx(p)
    assert one.weakest[0] is weak


def test_weighted_sums_are_run_by_run_over_common_runs(store):
    evidence = store("some", rows("relu", 50 + NOISE), rows("tanh", 51 + NOISE[::-1][:6]))
    found = evidence.estimate(STUDY, Contrast("sum", ((0.5, at("relu")), (2.0, at("tanh")))))
    values = 0.5 * (50 + NOISE[:6]) + 2 * (51 + NOISE[::-1][:6])
    assert (found.mean, found.standard_error) == pytest.approx((values.mean(), scipy.stats.sem(values)))
    assert found.units == 6


def test_cells_come_from_whatever_folder_and_the_newest_counts(store):
    store("a", rows("relu", [50.0, 51.0]), rows("tanh", [1.0, 2.0]))
    evidence = store("b", rows("tanh", [60.0, 62.0], finished="2026-02-02T00:00:00Z"))
    assert evidence.estimate(STUDY, minus("", at("tanh"), at("relu"))).mean == pytest.approx(10.5)
    assert evidence.folders[STUDY] == {"a", "b"}


def test_other_settings_are_another_study(store):
    deep = [{**row, "settings": {**row["settings"], "layers": 3}} for row in rows("tanh", [90.0, 91.0])]
    store("a", rows("relu", [50.0, 51.0]), rows("tanh", [60.0, 62.0]))
    evidence = store("b", deep, rows("tanh", [70.0, 72.0], finished="2026-02-02T00:00:00Z"))
    assert sorted(study.protocol for study in evidence.studies()) == ["converged", "converged, layers 3"]
    assert evidence.mean(STUDY, at("tanh")) == 71.0  # beside the other in one folder
    assert evidence.mean(STUDY._replace(protocol="converged, layers 3"), at("tanh")) == 90.5


def test_seeds_add_graphs_unless_they_draw_parameters_alone(store):
    relu = [{**row, "seed": seed} for seed in (0, 1) for row in rows("relu", 50 + seed + NOISE)]
    again = [{**row, "settings": {**row["settings"], "data_seed": 0}} for row in relu]
    store("a", relu)
    evidence = store("b", again)
    mean = Contrast("mean", ((1.0, at("relu")),))
    assert evidence.estimate(STUDY, mean).units == 20
    [other] = [study for study in evidence.studies() if study != STUDY]
    found = evidence.estimate(other, mean)
    assert (found.units, found.mean) == (10, pytest.approx(50.5 + NOISE.mean()))


def test_best_is_chosen_on_validation_and_never_on_test(store):
    evidence = store(
        "some", rows("relu", [50.0, 51.0], features=2, validation=60.0), rows("relu", [70.0, 71.0], validation=55.0)
    )
    assert evidence.cell(STUDY, at("relu", best=("features",))).features == 2
    with pytest.raises(NotRunError, match="run in 2 settings"):
        evidence.cell(STUDY, at("relu"))


def test_what_may_be_chosen_can_be_limited(store):
    """The widest validates best, but is no width of the paper's; the longest filter, but one method lacks it."""
    wide = [rows("relu", [50.0, 51.0], features=f, validation=v) for f, v in ((2, 60.0), (8, 61.0), (32, 70.0))]
    assert store("wide", *wide).cell(STUDY, at("relu", best=("features",), among=((2,), (8,)))).features == 8
    lost = {"condition": {"loss_probability": 0.1}}
    long = [
        rows(method, [50.0, 51.0], order=order, validation=50.0 + order, **given)
        for method, orders in (("elu", (2, 9)), ("gelu", (2,)))
        for order in orders
        for given in ({}, lost)
    ]
    evidence = store("long", *long)
    alone = {"best": ("order",), "features": 8}
    assert evidence.cell(STUDY, at("elu", condition={}, **alone)).order == 9
    for condition in ({}, lost["condition"]):  # the same order with and without loss
        assert evidence.cell(STUDY, at("elu", condition=condition, peers=("gelu",), **alone)).order == 2
    with pytest.raises(NotRunError):
        evidence.cell(STUDY, at("elu", condition={}, peers=("tanh",), **alone))


def test_diverged_runs_are_not_judged(store):
    evidence = store("some", rows("relu", [50.0, float("nan")]), rows("tanh", [1.0, 2.0]))
    verdict = verdict_on(claim(minus("x", at("tanh"), at("relu"))), STUDY, evidence)
    assert verdict.word == "not run"
    assert "diverged" in verdict.missing[0][1]


def test_numbers_of_the_paper_have_their_own_error(store):
    values = 60 + 5 * NOISE
    evidence = store("some", rows("relu", values))
    found = evidence.estimate(STUDY, Contrast("x", ((1.0, at("relu")),), published=(58.0, 10.0)))
    ours = scipy.stats.sem(values)
    theirs = 10.0 * ours / values.std(ddof=1)
    assert found.mean == pytest.approx(values.mean() - 58)
    assert found.standard_error == pytest.approx(np.hypot(ours, theirs))


def test_perturbed_inputs_are_judged_by_accuracy(tmp_path):
    """Max G.A. starts highest, loses more than one control, and is still ahead: the claim is about that."""
    clean = {"max-ga": 80.0, "square": 80.0, "root": 60.0, "relu": 80.0}
    lost = {"max-ga": 10.0, "square": 30.0, "root": 4.0, "relu": 10.0}
    rows = [
        {"task": "cora", "activation": activation, "limit": limit, "unit": unit, "accuracy": clean[activation] + noise}
        | {
            kind: [clean[activation] - lost[activation] + step + noise * 0.9 for step in (-1.0, 0.0, 1.0)]
            for kind in ("gaussian", "attack")
        }
        for activation in lost
        for limit in (None, 3.0)
        for unit, noise in enumerate(NOISE)
    ]
    rows = [row for row in rows if row["limit"] is None or row["activation"] == "max-ga"]
    (tmp_path / "robustness").mkdir()
    (tmp_path / "robustness" / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = {one.claim.key: one for one in judge(Evidence(tmp_path), CLAIMS) if one.study.preset == "robustness"}

    def means(key):
        return [round(one.mean, 6) for one in found[key].estimates.values()]

    lipschitz = found["lipschitz-is-robust"]
    assert means("lipschitz-is-robust") == [20.0, 20.0, 14.0, 14.0]
    assert lipschitz.word == "supported"
    assert lipschitz.weakest[1].units == 10


def test_published_accuracies_on_perturbed_inputs_are_those_of_the_guarantees(published):
    """docs/guarantees.md has the same rows: means over the levels, minus those of ReLU."""
    page = (published.directory.parent / "docs" / "guarantees.md").read_text()
    for task, lead in (("source-localization", "source localization"), ("cora", "Cora")):
        study = Study("source-localization", "robustness", task)
        (line,) = [
            line for line in page.partition(f"| **{lead}** |")[2].splitlines() if line.startswith("| Max G.A. |")
        ][:1]
        under_noise, under_attack = line.split("|")[4:6]
        for kind, text in (("gaussian", under_noise), ("attack", under_attack)):
            found = published.estimate(
                study, minus("", *(at(m, condition={"perturbed": kind}) for m in ("max-ga", "relu")))
            )
            mean = published.mean(study, at("max-ga", condition={"perturbed": kind}))
            assert text.strip().startswith(f"{mean:.1f} ({found.mean:+.1f} ± {found.margin:.1f}")


def test_claims_have_keys_of_their_own_and_known_places():
    keys = [(one.experiment, one.key) for one in CLAIMS]
    assert len(set(keys)) == len(keys)
    paper = [one for one in CLAIMS if one.where != "here"]
    assert all(one.where.startswith("Section 4." if one.preset is None else "Section 3.3") for one in paper)
    assert len(paper) >= 25
    assert all(one.contrasts and one.says in ("above", "below", "within") for one in CLAIMS)


@pytest.fixture(scope="module")
def published(results):
    return Evidence(results)


def test_published_contrasts_are_those_of_scipy(published):
    """One of graphs, one of splits, by hand."""
    cells = published.cells[STUDY]

    def by_graph(method, hops):
        [cell] = [c for c in cells if (c.method, c.hops, c.features, c.order) == (method, hops, 8, 4)]
        return np.array([[row["value"] for row in cells[cell] if row["graph"] == graph] for graph in range(10)])

    gain = minus("x", at("max-ga", hops=2, features=8, order=4), at("relu", features=8, order=4))
    found = published.estimate(STUDY, gain)
    test = scipy.stats.ttest_1samp((by_graph("max-ga", 2) - by_graph("relu", None)).mean(1), 0.0)
    interval = test.confidence_interval(0.95)
    assert found.interval() == pytest.approx((interval.low, interval.high))
    assert found.p_unlike() == pytest.approx(test.pvalue)
    study = LITERAL_DENOISING
    where = {"features": 4, "order": 2, "condition": {"snr_db": 3.0}}
    found = published.estimate(study, minus("x", at("max-l", **where), at("fir", **where)))
    ours, theirs = (np.array(published.values(study, at(method, **where))) for method in ("max-l", "fir"))
    spread = (ours - theirs).std(ddof=1) * np.sqrt(1 / 20 + 1 / 8)
    assert found.margin == pytest.approx(scipy.stats.t.ppf(0.975, 19) * spread)
