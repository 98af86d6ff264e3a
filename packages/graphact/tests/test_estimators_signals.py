"""Estimators of signals over time: scikit-learn's contract, splits by time, missing readings, one line for a fault."""

import numpy as np
import pytest
import torch

import graphact
from graphact import Graph

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator

from graphact.estimators import SignalClassifier, SignalRegressor, compare_baselines, load
from graphact.estimators.signal_inputs import corrupt, windows

QUICK = {"epochs": 8, "width": 4, "random_state": 0}
alone = pytest.mark.filterwarnings("ignore:(Signal.*|OnRing)[.]fit. graph is missing:UserWarning")  # on purpose


def weather(times=160, nodes=6, seed=0):
    """A wave that passes a ring of sensors, with noise, and the ring."""
    places = np.arange(nodes)
    ends = np.stack([places, (places + 1) % nodes])
    graph = Graph.from_edge_index(np.concatenate([ends, ends[::-1]], 1)).normalize("symmetric")
    clean = 280 + 5 * np.sin(np.arange(times)[:, None] / 8 + 2 * np.pi * places / nodes)
    return clean, clean + np.random.default_rng(seed).normal(size=clean.shape), graph


REGRESSOR = SignalRegressor(target_node=0, epochs=20, random_state=0, early_stopping=False)
CLASSIFIER = SignalClassifier(target_node=0, epochs=20, random_state=0, early_stopping=False)
STOPPING = SignalRegressor(target_node=0, epochs=5, random_state=0, validation_fraction=0.3, scaling="node")


class OnRing(SignalRegressor):
    """A regressor on a ring of as many nodes as there are columns."""

    def fit(self, X, y=None, *, graph=None):  # noqa: N803
        array = X if hasattr(X, "ndim") else np.asarray(X)
        count = array.shape[1] if array.ndim == 2 else 0
        ring = Graph.from_edge_index([[*range(count)], [*range(1, count), 0]]) if count > 1 else graph
        return super().fit(X, y, graph=ring)


ON_RING = OnRing(target_node=0, epochs=20, random_state=0, early_stopping=False)
CONTRACT = [
    pytest.param(estimator, check, id=f"{type(estimator).__name__}-{check.func.__name__}")
    for estimator in (REGRESSOR, CLASSIFIER, STOPPING, ON_RING)
    for _, check in estimator_checks_generator(estimator, mark=None)
    if check.func.__name__
    not in (
        "check_array_api_input",  # of estimators that claim to take arrays of other libraries
        "check_regressors_train",  # the target needs all columns; without a graph there is one
        "check_classifiers_train",  # likewise
        "check_classifiers_classes",  # likewise
    )
]


@pytest.mark.slow
@alone
@pytest.mark.filterwarnings("ignore:X. .* in the training part:UserWarning")
@pytest.mark.parametrize(("estimator", "check"), CONTRACT)
def test_contract(estimator, check):
    check(clone(estimator))


@pytest.mark.slow
def test_denoising_beats_the_readings_and_the_neighbors_count():
    clean, noisy, graph = weather(400)
    model = SignalRegressor(epochs=30, random_state=0).fit(noisy[:300], clean[:300], graph=graph)
    found = model.predict(noisy[320:])
    error, before = (np.sqrt(np.mean((each - clean[320:]) ** 2)) for each in (found, noisy[320:]))
    assert error < 0.65 * before
    with pytest.warns(UserWarning, match="graph is missing"):
        lonely = clone(model).fit(noisy[:300], clean[:300])
    assert np.sqrt(np.mean((lonely.predict(noisy[320:]) - clean[320:]) ** 2)) > 1.2 * error
    assert model.score(noisy[320:], clean[320:]) == pytest.approx(r2_score(clean[320:].ravel(), found.ravel()))


@pytest.mark.slow
def test_tasks_without_targets():
    clean, _, graph = weather(400)
    settings = {"epochs": 30, "random_state": 0}
    forecast = SignalRegressor(task="forecast", horizon=2, window=4, **settings).fit(clean[:300], graph=graph)
    found = forecast.predict(clean[300:])
    assert np.abs(found[4:-2] - clean[306:]).max() < 1.5
    assert np.sqrt(np.mean((clean[302:] - clean[300:-2]) ** 2)) > 1.2 * np.sqrt(
        np.mean((found[:-2] - clean[302:]) ** 2)
    )
    expected = r2_score(clean[302:].ravel(), found[:-2].ravel())
    assert forecast.score(clean[300:]) == pytest.approx(expected)
    impute = SignalRegressor(task="impute", **settings).fit(clean[:300], graph=graph)
    gaps = clean[300:].copy()
    gaps[:, 2] = np.nan
    filled = impute.predict(gaps)[:, 2]
    assert np.sqrt(np.mean((filled - clean[300:, 2]) ** 2)) < 1.0
    assert clean.std() > 3.0
    denoise = SignalRegressor(task="denoise", **settings).fit(clean[:300], graph=graph)
    spoilt = denoise._corrupt(clean[300:, :, None])[..., 0]
    assert np.isnan(spoilt).any()
    assert np.nanmax(np.abs(spoilt - clean[300:])) > 20
    found = compare_baselines(denoise, clean[:300], clean[300:], y_test=clean[300:])
    assert found["reading as it is"] == 0.0
    assert found["network"] == pytest.approx(np.sqrt(np.mean((denoise.predict(clean[300:]) - clean[300:]) ** 2)))
    assert found["network"] < compare_baselines(denoise, clean[:300], clean[300:])["network"]
    assert denoise.score(clean[300:]) == pytest.approx(r2_score(clean[300:].ravel(), denoise.predict(spoilt).ravel()))
    assert denoise.score(clean[300:]) > 0.8


def test_the_last_times_are_held_out_behind_a_gap():
    model = SignalRegressor(task="forecast", horizon=3, window=5, validation_fraction=0.2)
    train, held_out = model._split(103)
    np.testing.assert_array_equal(held_out, np.arange(80, 100))
    assert train[-1] + 3 < held_out[0] - 4  # the last target learned from stands before the first window held out
    assert train[-1] + 3 + 1 == held_out[0] - 4
    _, noisy, graph = weather()
    other = noisy.copy()
    other[-24:] += 1.0  # held out alone: scale and parameters come from the times before
    models = [SignalRegressor(task="impute", **{**QUICK, "epochs": 1}).fit(x, graph=graph) for x in (noisy, other)]
    for name, value in models[0].model_.state_dict().items():
        assert torch.equal(value, models[1].model_.state_dict()[name]), name
    assert models[0].model_.input.mean.item() == pytest.approx(noisy[:136].mean(), rel=1e-6)


def test_windows_look_back():
    readings = torch.arange(12.0).view(6, 2, 1)
    found = windows(readings, np.array([0, 1, 5]), 3)
    assert found.shape == (3, 2, 3)
    assert found[2, 1].tolist() == [11.0, 9.0, 7.0]
    assert found[1, 0, :2].tolist() == [2.0, 0.0]
    assert found[0, :, 1:].isnan().all()
    assert found[1, :, 2].isnan().all()


@pytest.mark.slow
def test_arrays_tensors_and_tables_are_the_same():
    pandas = pytest.importorskip("pandas")
    clean, noisy, graph = weather()
    names = [f"s{i}" for i in range(6)]
    hours = pandas.date_range("2026-01-01", periods=160, freq="h")
    table = pandas.DataFrame(noisy, index=hours, columns=names)
    expected = SignalRegressor(**QUICK).fit(noisy, clean, graph=graph).predict(noisy)
    assert expected.shape == (160, 6)
    for x, y in ((torch.from_numpy(noisy), torch.from_numpy(clean)), (table, pandas.DataFrame(clean, hours, names))):
        np.testing.assert_array_equal(SignalRegressor(**QUICK).fit(x, y, graph=graph).predict(x), expected)
    model = SignalRegressor(**QUICK).fit(table, clean, graph=graph)
    assert model.nodes_ == names
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[names[::-1]])
    at_one = SignalRegressor(target_node="s2", **QUICK).fit(table, clean[:, 2], graph=graph)
    assert at_one.predict(table).shape == (160,)
    np.testing.assert_array_equal(
        at_one.predict(table),
        SignalRegressor(target_node=2, **QUICK).fit(noisy, clean[:, 2], graph=graph).predict(noisy),
    )


@pytest.mark.slow
def test_several_features_and_outputs():
    clean, noisy, graph = weather()
    x, y = np.stack([noisy, noisy**2], -1), np.stack([clean, -clean, clean + 5], -1)
    model = SignalRegressor(window=2, **QUICK).fit(x, y, graph=graph)
    assert model.predict(x).shape == (160, 6, 3)
    assert SignalRegressor(task="impute", **QUICK).fit(x, graph=graph).predict(x).shape == (160, 6, 2)
    single = SignalRegressor(**QUICK).fit(x, y[..., :1], graph=graph)
    assert single.predict(x).shape == (160, 6, 1)
    assert single.score(x, y[..., :1]) == pytest.approx(r2_score(clean.ravel(), single.predict(x).ravel()), abs=1e-9)


def test_missing_targets_ask_for_nothing():
    clean, noisy, graph = weather()
    y = clean.copy()
    y[::3, 1] = np.nan
    model = SignalRegressor(**QUICK).fit(noisy, y, graph=graph)
    known = np.isfinite(y)
    assert model.score(noisy, y) == pytest.approx(r2_score(clean[known], model.predict(noisy)[known]))
    labels = np.where(known, clean > 280, np.nan)
    classifier = SignalClassifier(**QUICK).fit(noisy, labels, graph=graph)
    assert classifier.classes_.tolist() == [0, 1]
    right = classifier.predict(noisy) == labels
    assert classifier.score(noisy, labels) == pytest.approx(right[known].mean())


@pytest.mark.slow
def test_classes_at_nodes_and_at_one_node():
    clean, noisy, graph = weather(400)
    labels = np.where(clean > 280, "warm", "cold")
    model = SignalClassifier(epochs=20, random_state=0).fit(noisy[:300], labels[:300], graph=graph)
    assert model.score(noisy[320:], labels[320:]) > 0.9
    proba = model.predict_proba(noisy[320:])
    assert proba.shape == (80, 6, 2)
    np.testing.assert_allclose(proba.sum(-1), 1)
    np.testing.assert_array_equal(model.classes_[proba.argmax(-1)], model.predict(noisy[320:]))
    one = clone(model).set_params(target_node=3).fit(noisy[:300], labels[:300, 3], graph=graph)
    assert one.score(noisy[320:], labels[320:, 3]) > 0.85


@pytest.mark.slow
def test_rounds_are_the_budget():
    clean, noisy, graph = weather()
    for rounds, options in ((3, {}), (2, {"bank": "linear"}), (6, {"bank": "linear", "activation": "max-ga"})):
        model = SignalRegressor(rounds, **options, **QUICK).fit(noisy, clean, graph=graph)
        assert sum(layer.exchanges for layer in model.model_.layers()) == rounds
    with pytest.raises(ValueError, match="rounds must be a multiple of 3, those of a layer with 'max-ga', got 4"):
        SignalRegressor(4, bank="linear", activation="max-ga").fit(noisy, clean, graph=graph)


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["global", "node"])
def test_files_are_those_of_the_estimator_and_of_its_model(scaling, tmp_path):
    clean, noisy, graph = weather()
    model = SignalRegressor(task="forecast", window=3, scaling=scaling, ops=("median", "max"), **QUICK)
    model.fit(noisy, graph=graph).save(tmp_path / "model.safetensors")
    same = load(tmp_path / "model.safetensors")
    assert same.get_params() == model.get_params()
    np.testing.assert_array_equal(same.predict(noisy, graph=graph), model.predict(noisy))
    with pytest.raises(ValueError, match="graph must be given: the file of an estimator holds no graph"):
        same.predict(noisy)
    module = graphact.load(tmp_path / "model.safetensors")
    x = windows(torch.from_numpy(noisy.astype(np.float32))[..., None], torch.arange(160), 3)
    expected = model.predict(noisy)
    assert np.abs(module(x, model.graph_).detach().numpy()[..., 0] - expected).max() <= 1e-6 * np.abs(expected).max()
    classifier = SignalClassifier(**QUICK).fit(noisy, clean > 280, graph=graph)
    classifier.save(tmp_path / "classes.safetensors")
    np.testing.assert_array_equal(
        load(tmp_path / "classes.safetensors").predict(noisy, graph=graph), classifier.predict(noisy)
    )


@pytest.mark.slow
def test_answers_are_in_the_units_of_the_user():
    _, noisy, graph = weather()
    kelvin = SignalRegressor(task="impute", **QUICK).fit(noisy, graph=graph)
    celsius = SignalRegressor(task="impute", **QUICK).fit(noisy - 273.15, graph=graph)
    fahrenheit = SignalRegressor(task="impute", **QUICK).fit((noisy - 273.15) * 1.8 + 32, graph=graph)
    np.testing.assert_allclose(celsius.predict(noisy - 273.15), kelvin.predict(noisy) - 273.15, atol=1e-3)
    np.testing.assert_allclose(
        fahrenheit.predict((noisy - 273.15) * 1.8 + 32), (kelvin.predict(noisy) - 273.15) * 1.8 + 32, atol=2e-3
    )


@pytest.mark.slow
def test_scaling_of_each_node():
    _, noisy, graph = weather()
    units = np.array([1.0, 10.0, 0.1, 1.0, 1.0, 100.0])
    model = SignalRegressor(task="impute", scaling="node", **QUICK).fit(noisy * units, graph=graph)
    plain = SignalRegressor(task="impute", scaling="node", **QUICK).fit(noisy, graph=graph)
    np.testing.assert_allclose(model.predict(noisy * units) / units, plain.predict(noisy), rtol=1e-4)


@pytest.mark.slow
def test_searches_and_folds_of_time():
    clean, noisy, graph = weather()
    model = SignalRegressor(**QUICK)
    folds = TimeSeriesSplit(2, gap=6)
    scores = cross_val_score(model, noisy, clean, cv=folds, params={"graph": graph})
    assert scores.shape == (2,)
    search = GridSearchCV(model, {"rounds": [1, 2]}, cv=folds).fit(noisy, clean, graph=graph)
    assert search.best_params_["rounds"] in (1, 2)


def test_progress_and_early_stopping(capsys):
    clean, noisy, graph = weather()
    noise = np.random.default_rng(5).normal(size=clean.shape)  # nothing to be learned
    model = SignalRegressor(epochs=200, patience=3, verbose=True, random_state=0).fit(noisy, noise, graph=graph)
    assert model.n_iter_ == model.best_epoch_ + 3 < 200
    assert len(capsys.readouterr().out.splitlines()) == model.n_iter_ == len(model.loss_curve_)


MASK_TAKES = "missing='mask' takes missing readings"
MISSING_NODE = "a column for each of the 6 nodes of graph, got 5; columns are in the order of the nodes"
HELD_OUT = "in the held-out part, got NaN alone"
AHEAD = {"task": "forecast", "horizon": 8}
FAULTY_READINGS = [
    (lambda x: "readings.csv", {}, r"X must have the shape \(times, nodes\), got \(\)"),
    (lambda x: x[:, 0], {}, r"the shape \(times, nodes\), got \(160,\). Reshape your data: X.resh"),
    (lambda x: x[..., None, None], {}, r"shape \(times, nodes\) or \(times, nodes, features\)"),
    (lambda x: x[:, 1:], {}, MISSING_NODE),
    (lambda x: x[:, 1:], {"graph": weather()[2].to_dense().to_sparse()}, MISSING_NODE),
    (lambda x: x[:, 1:], {"graph": weather()[2].to_edge_index()[0]}, MISSING_NODE),
    (lambda x: np.where(x > 285, np.inf, x), {}, "X must hold finite readings, got infinity at time"),
    (lambda x: np.where(x > 285, np.nan, x), {"missing": "refuse"}, f"got NaN at time .*, node .*; {MASK_TAKES}"),
    (lambda x: np.ma.masked_greater(x, 285), {"missing": "refuse"}, "X must hold finite readings, got NaN at time"),
    (lambda x: x[:3], {}, "X must hold at least 4 times to learn from, got 3"),
    (lambda x: x[:20], {"window": 18}, "X must hold more times: of 20, 3 are held out"),
    (lambda x: x[:20], {"task": "forecast", "horizon": 18}, "X must hold at least 22 times to learn from, got 20"),
    (lambda x: x[:9], {**AHEAD, "early_stopping": False}, "X must hold at least 10 times to learn from, got 9"),
    (lambda x: x * 1e-4 + 6378137.0, {}, "X must vary by more than float32 tells apart, got the mean .*: subtract a"),
    (lambda x: x * np.nan, {}, "X must hold a reading in the training part, got NaN alone"),
    (lambda x: x * np.nan, {"task": "denoise"}, "X must hold a reading in the training part, got NaN alone"),
    (lambda x: np.where(LATE, np.nan, x), {"task": "impute"}, f"X must hold a number {HELD_OUT}"),
    (lambda x: x + 1j, {}, "X must hold real numbers, got complex128"),
    (
        lambda x: np.where(np.arange(6) == 2, 7.0, x),
        {"scaling": "node"},
        "X: 2 always reads the same in the training part, and scaling='node' needs readings that vary",
    ),
]
LATE = np.arange(160)[:, None] >= 136  # the part that is held out
FAULTY_TARGETS = [
    (lambda y: None, {}, "without y, task= must be one of denoise, impute, forecast"),
    (lambda y: y, {"task": "impute"}, "y must be None for task='impute'"),
    (lambda y: y[1:], {}, r"y must have the shape \(160, 6\), as X, got \(159, 6\)"),
    (lambda y: y[:, 0], {}, "target_node= must say which of the 6 nodes"),
    (lambda y: y[:, 0], {"target_node": "s9"}, "target_node must be one of the nodes 0, 1, 2"),
    (lambda y: y[:, 0], {"target_node": 6}, "target_node must be from 0 to 5, got 6"),
    (lambda y: y, {"target_node": 1}, r"shape \(160,\) for target_node=1, got \(160, 6\)"),
    (lambda y: np.where(y > 284, np.inf, y), {}, "y must hold finite numbers, got infinity at time 0"),
    (lambda y: y * np.nan, {}, "y must hold a number in the training part, got NaN alone"),
    (lambda y: np.where(LATE, np.nan, y), {}, f"y must hold a number {HELD_OUT}"),
    (
        lambda y: np.where(np.arange(6) == 2, np.nan, y),
        {"scaling": "node"},
        "y: 2 has no target in the training part, and scaling='node' needs some",
    ),
    (lambda y: y * 1e60, {}, "y must hold numbers of float32, got a standard dev"),
    (lambda y: y.astype(str), {}, "y must hold real numbers, got <U"),
    (lambda y: np.full(y.shape, {}), {}, "y must hold real numbers: float"),
    (lambda y: y + 1j, {}, "y must hold real numbers, got complex128"),
    (lambda y: np.full(y.shape, np.datetime64("2026-01-01")), {}, "y must hold real numbers, got datetime64"),
]
FAULTY_SETTINGS = [
    ({"task": "predict"}, "task must be one of 'denoise', 'impute', 'forecast'"),
    ({"window": 0}, "window must be at least 1, got 0"),
    ({"window": 2, "missing": "refuse"}, "missing must be 'mask' for a window"),
    ({"hide": 0.1, "missing": "refuse"}, "hide must be 0 with missing='ref"),
    ({"rounds": 0}, "rounds must be at least 1, got 0"),
    ({"noise": -1.0}, "noise must be a number of standard deviations"),
    ({"horizon": 3}, "horizon must be 1 unless task='forecast', which alone uses it, got 3"),
    ({"ops": "median"}, r"ops must list at least one .*, got 'median'"),
    ({"validation_fraction": float("nan")}, "validation_fraction must lie between 0 and 1, got nan"),
]


def check_one_line(x, y, settings, message):
    graph = settings.get("graph", weather()[2])
    model = SignalRegressor(**{**QUICK, **{name: value for name, value in settings.items() if name != "graph"}})
    with pytest.raises(ValueError, match=message) as caught:
        model.fit(x, y, graph=graph)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("spoil", "settings", "message"), FAULTY_READINGS)
def test_one_line_for_faulty_readings(spoil, settings, message):
    clean, noisy, _ = weather()
    check_one_line(spoil(noisy), None if "task" in settings else clean, settings, message)


@pytest.mark.parametrize(("spoil", "settings", "message"), FAULTY_TARGETS)
def test_one_line_for_faulty_targets(spoil, settings, message):
    clean, noisy, _ = weather()
    check_one_line(noisy, spoil(clean), settings, message)


@pytest.mark.parametrize(("settings", "message"), FAULTY_SETTINGS)
def test_one_line_for_faulty_settings(settings, message):
    clean, noisy, _ = weather()
    check_one_line(noisy, None if "task" in settings else clean, settings, message)


def test_tables_of_other_things_than_readings():
    pandas = pytest.importorskip("pandas")
    _, noisy, graph = weather()
    hours = pandas.date_range("2026-01-01", periods=160, freq="h", name="time")
    table = pandas.DataFrame(noisy, hours, list("abcdef"))
    model = SignalRegressor(task="impute", **QUICK)
    for named, message in (
        (table.reset_index(), "X must hold numbers, got .* in the column 'time': .* times are the index, X.set_index"),
        (table.reset_index().astype({"time": str}), "X must hold numbers, got '2026-01-01.* in the column 'time': "),
        (table.astype(str).replace(table["b"].astype(str).iloc[7], "n/a"), "got 'n/a' in the column 'b': a missing"),
        (table.set_axis(list("aabbcc"), axis=1), "X must have one column for each node, got 'a' twice"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            model.fit(named, graph=graph)
        assert len(str(caught.value).splitlines()) == 1
    text = model.fit(table.astype(str), graph=graph).predict(table)
    np.testing.assert_array_equal(text, model.fit(table, graph=graph).predict(table))


def test_masked_readings_are_missing():
    clean, noisy, graph = weather()
    masked, gaps = np.ma.masked_greater(noisy, 285), np.where(noisy > 285, np.nan, noisy)
    model = SignalRegressor(task="impute", **QUICK).fit(gaps, graph=graph)
    np.testing.assert_array_equal(model.predict(masked), model.predict(gaps))
    same = SignalRegressor(task="impute", **QUICK).fit(masked, graph=graph)
    np.testing.assert_array_equal(same.predict(gaps), model.predict(gaps))
    targets = np.ma.masked_greater(clean, 284)
    assert model.score(gaps, targets) == model.score(gaps, targets.filled(np.nan))


def test_graphs_that_do_not_belong_to_the_readings():
    networkx = pytest.importorskip("networkx")
    _, noisy, graph = weather()
    model = SignalRegressor(task="impute", **QUICK)
    ring = networkx.Graph([(0, 5), (5, 4), (4, 3), (3, 2), (2, 1), (1, 0)])
    with pytest.raises(ValueError, match="graph must list its nodes in the order of the columns of X, got '5' for '1'"):
        model.fit(noisy, graph=ring)
    ordered = networkx.Graph()
    ordered.add_nodes_from(range(6))
    ordered.add_edges_from(ring.edges)
    expected = model.fit(noisy, graph=graph).predict(noisy)
    np.testing.assert_allclose(model.fit(noisy, graph=ordered).predict(noisy), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="got '5' for '1'"):
        model.predict(noisy, graph=ring)
    places = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(TypeError, match=r"graph must be .* \(6, 2\); of places, graphact.Graph.nearest_neighbors"):
        model.fit(noisy, graph=places)


def test_times_that_do_not_ascend():
    pandas = pytest.importorskip("pandas")
    _, noisy, graph = weather()
    hours = pandas.date_range("2026-01-01", periods=160, freq="h")
    model = SignalRegressor(task="forecast", **QUICK)
    table = pandas.DataFrame(noisy, index=hours, columns=list("abcdef"))
    with pytest.raises(ValueError, match=r"X must be sorted by time, got 2026-01-01 02.*: call X.sort_index\(\)"):
        model.fit(table.iloc[[0, 3, 2, *range(4, 160)]], graph=graph)
    with pytest.raises(ValueError, match="one row for each time, got 2026-01-01 00:00:00 twice"):
        model.fit(table.iloc[[0, 0, *range(1, 160)]], graph=graph)
    with pytest.raises(ValueError, match=r"equal steps of time .*, got 2026-01-01 04:00:00 to .* 06:00:00 .*resample"):
        model.fit(table.drop(hours[5]), graph=graph)
    model.fit(table.drop(hours[5]).resample("1h").mean(), graph=graph)
    months = pandas.period_range("2001-01", periods=160, freq="M")
    for index in (hours.astype(str), hours.astype(object), months):
        other = table.set_axis(index)
        model.fit(other, graph=graph)
        with pytest.raises(ValueError, match="equal steps of time"):
            model.fit(other.drop(index[5]), graph=graph)
    with pytest.raises(ValueError, match=r"X must have times as its index, .*, got 'a000': .*to_datetime"):
        model.fit(table.set_axis([f"a{number:03}" for number in range(160)]), graph=graph)


def test_text_of_times_is_read_in_the_order_of_iso():
    pandas = pytest.importorskip("pandas")
    _, noisy, graph = weather()
    hours = pandas.date_range("2026-03-29 20:00", periods=160, freq="h")
    table = pandas.DataFrame(noisy, index=hours.strftime("%d.%m.%Y %H:%M"))
    for window in (1, 2):
        model = SignalRegressor(task="impute", window=window, **QUICK)
        for wrong in (table, table.sort_index()):  # 01.04. is before 31.03. as text
            with pytest.raises(ValueError, match=r"got '\d\d.\d\d.2026 .*to_datetime\(X.index, dayfirst=True\)"):
                model.fit(wrong, graph=graph)
        model.fit(table.set_axis(pandas.to_datetime(table.index, dayfirst=True)), graph=graph)
        autumn = pandas.date_range("2026-10-24", periods=160, freq="h", tz="Europe/Paris")
        model.fit(table.set_axis(autumn.strftime("%Y-%m-%d %H:%M:%S%z")), graph=graph)


@pytest.mark.slow
def test_advice_for_unequal_steps():
    pandas = pytest.importorskip("pandas")
    _, noisy, graph = weather()
    model = SignalRegressor(task="forecast", **QUICK)
    hours = pandas.date_range("2026-01-01", periods=160, freq="h")
    late = hours + pandas.to_timedelta(np.arange(160) % 3, unit="s")
    days = pandas.date_range("2026-03-01", periods=160, freq="D", tz="Europe/Paris")
    months = pandas.date_range("2010-01-31", periods=160, freq="ME")
    periods = pandas.period_range("2001-01", periods=161, freq="M").delete(5)
    for index, advice, mend in (
        (late, r"resample\('1h'\).mean\(\)", lambda x: x.resample("1h").mean()),
        (days, r"tz_localize\(None\) takes days", lambda x: x.tz_localize(None)),
        (months, r"to_period\('M'\)", lambda x: x.to_period("M")),
        (periods, r"reindex\(", lambda x: x.reindex(pandas.period_range("2001-01", periods=161, freq="M"))),
    ):
        table = pandas.DataFrame(noisy, index)
        with pytest.raises(ValueError, match=f"equal steps of time .*{advice}") as caught:
            model.fit(table, graph=graph)
        assert len(str(caught.value).splitlines()) == 1
        mended = mend(table)
        assert mended.notna().to_numpy().mean() > 0.99
        model.fit(mended, graph=graph)


def test_rounded_times_have_equal_steps():
    pandas = pytest.importorskip("pandas")
    _, noisy, graph = weather()
    model = SignalRegressor(task="forecast", **QUICK)
    table = pandas.DataFrame(noisy, index=np.arange(160) * 0.1)
    model.fit(table, graph=graph)
    with pytest.raises(ValueError, match="equal steps of time"):
        model.fit(table.drop(table.index[5]), graph=graph)


def test_columns_that_are_numbers_are_names():
    pandas = pytest.importorskip("pandas")
    _, noisy, graph = weather()
    table = pandas.DataFrame(noisy, columns=[30, 10, 20, 60, 50, 40])
    model = SignalRegressor(task="impute", scaling="node", **QUICK).fit(table, graph=graph)
    assert model.nodes_ == ["30", "10", "20", "60", "50", "40"]
    with pytest.raises(ValueError, match="X must have the columns 30, 10, 20, .* in this order, as in fit, got 40, 50"):
        model.predict(table[table.columns[::-1]])
    np.testing.assert_array_equal(model.predict(noisy), model.predict(table))
    backwards = SignalRegressor(**QUICK).fit(noisy, noisy, graph=graph)
    np.testing.assert_array_equal(backwards.predict(noisy[::-1]), backwards.predict(noisy[::-1].copy()))


def test_targets_of_other_times_or_nodes_are_refused():
    pandas = pytest.importorskip("pandas")
    clean, noisy, graph = weather()
    hours = pandas.date_range("2026-01-01", periods=160, freq="h")
    x, y = (pandas.DataFrame(values, hours, list("abcdef")) for values in (noisy, clean))
    with pytest.raises(ValueError, match="y must have the nodes of X in the same order, got f for a"):
        SignalRegressor(**QUICK).fit(x, y[y.columns[::-1]], graph=graph)
    with pytest.raises(ValueError, match="y must have the times of X in the same order, got 2026-01-01 01:00"):
        SignalRegressor(**QUICK).fit(x, y.set_index(hours + hours.freq), graph=graph)
    model = SignalRegressor(**QUICK).fit(x, y, graph=graph)
    with pytest.raises(ValueError, match="y must have the nodes of X"):
        model.score(x, y[y.columns[::-1]])
    with pytest.raises(ValueError, match="y must have the nodes of X"):
        compare_baselines(model, x, x, y, y[y.columns[::-1]])


def test_missing_values_of_tables():
    pandas = pytest.importorskip("pandas")
    clean, noisy, graph = weather()
    labels, known = clean > 280, np.ones(clean.shape, bool)
    known[3, 2] = False
    table = pandas.DataFrame(labels).astype("boolean").mask(pandas.DataFrame(~known))
    model = SignalClassifier(**QUICK).fit(noisy, table, graph=graph)
    expected = SignalClassifier(**QUICK).fit(noisy, np.where(known, labels, np.nan), graph=graph)
    np.testing.assert_array_equal(model.predict_proba(noisy), expected.predict_proba(noisy))
    for part, name in ((slice(0, 136), "training"), (slice(136, 160), "held-out")):
        unknown = np.where(known, labels, np.nan)
        unknown[part] = np.nan
        with pytest.raises(ValueError, match=f"y must hold a class in the {name} part, got NaN alone"):
            SignalClassifier(**QUICK).fit(noisy, unknown, graph=graph)
    with pytest.raises(ValueError, match="y must be given to an estimator without task=, got None"):
        model.score(noisy)
    with pytest.raises(ValueError, match="y must hold a class to score, got none"):
        model.score(noisy, np.full(clean.shape, np.nan))
    with pytest.raises(ValueError, match=r"sample_weight must have the shape \(160,\), got \(7,\)"):
        model.score(noisy, labels, sample_weight=np.ones(7))
    targets = pandas.DataFrame(clean).astype("Float64").mask(pandas.DataFrame(~known))
    regressor = SignalRegressor(**QUICK).fit(noisy, targets, graph=graph)
    expected = SignalRegressor(**QUICK).fit(noisy, np.where(known, clean, np.nan), graph=graph)
    np.testing.assert_array_equal(regressor.predict(noisy), expected.predict(noisy))


def test_units_may_be_small():
    _, noisy, graph = weather()
    model, small = (SignalRegressor(task="impute", **QUICK).fit(x, graph=graph) for x in (noisy, noisy * 1e-14))
    np.testing.assert_allclose(small.predict(noisy * 1e-14), model.predict(noisy) * 1e-14, rtol=1e-5)


def test_without_targets_a_score_is_that_of_the_task():
    clean, noisy, graph = weather(400)
    model = SignalRegressor(task="impute", **QUICK).fit(clean[:300], graph=graph)
    spoilt = model._corrupt(clean[300:, :, None])[..., 0]
    hidden = np.isnan(spoilt)
    answers = model.predict(spoilt)
    assert model.score(clean[300:]) == pytest.approx(r2_score(clean[300:][hidden], answers[hidden]))
    found = compare_baselines(model, clean[:300], clean[300:])
    assert found["network"] == pytest.approx(np.sqrt(np.mean((answers - clean[300:])[hidden] ** 2)))
    model = SignalRegressor(**QUICK).fit(noisy, clean, graph=graph)
    for call in (lambda: model.score(noisy), lambda: compare_baselines(model, noisy, noisy)):
        with pytest.raises(ValueError, match="y must be given to an estimator without task=, got None"):
            call()
    with pytest.raises(ValueError, match="y_test must be given with y_train, got None"):
        compare_baselines(model, noisy, noisy, clean)
    with pytest.raises(ValueError, match="y must be given to an estimator without task=, got None"):
        compare_baselines(model, noisy, noisy, y_test=clean)
    for name, parts in (("train", (noisy * np.nan, noisy)), ("test", (noisy, noisy * np.nan))):
        denoiser = SignalRegressor(task="denoise", **QUICK).fit(noisy, graph=graph)
        with pytest.raises(ValueError, match=f"{name} must hold a target to compare with, got none"):
            compare_baselines(denoiser, *parts)


def test_baselines_of_what_was_loaded_and_of_a_silent_sensor(tmp_path):
    _, noisy, graph = weather()
    model = SignalRegressor(task="denoise", **QUICK).fit(noisy[:100], graph=graph)
    model.save(tmp_path / "model.safetensors")
    same = load(tmp_path / "model.safetensors")
    found = compare_baselines(same, noisy[:100], noisy[100:], graph=graph)
    assert found == compare_baselines(model, noisy[:100], noisy[100:])
    with pytest.raises(TypeError, match="model must be a fitted SignalRegressor, got ScaledNetwork"):
        compare_baselines(model.model_, noisy, noisy)
    noisy[:, 3] = np.nan
    with pytest.warns(UserWarning, match="X: 3 has no reading"):
        model = SignalRegressor(task="denoise", **QUICK).fit(noisy[:100], graph=graph)
    assert np.isfinite(list(compare_baselines(model, noisy[:100], noisy[100:]).values())).all()


def test_least_squares_does_not_see_the_noise_of_the_test():
    rng = np.random.default_rng(0)
    readings, graph = rng.normal(size=(20, 6)), weather()[2]
    model = SignalRegressor(task="denoise", noise=2.0, outliers=0.0, hide=0.0, window=5, epochs=1, random_state=0)
    model.set_params(early_stopping=False).fit(readings, graph=graph)
    found = compare_baselines(model, readings, readings)  # the same readings, so that only the noise is new
    assert found["linear least squares"] > 0.9 * readings.std()


def test_a_graph_without_edges_is_said():
    _, noisy, _ = weather()
    apart = Graph.within_radius(np.arange(6.0)[:, None], 0.5)
    with pytest.warns(UserWarning, match="SignalRegressor.fit: graph has no edges, and every node is on its own"):
        SignalRegressor(task="impute", **QUICK).fit(noisy, graph=apart)


def test_sensors_that_say_nothing_are_named():
    clean, noisy, graph = weather()
    noisy[:, 1], noisy[:, 4] = np.nan, 12.0
    with (
        pytest.warns(UserWarning, match="X: 1 has no reading in the training part; is the sensor broken"),
        pytest.warns(UserWarning, match="X: 4 always reads the same"),
    ):
        model = SignalRegressor(**QUICK).fit(noisy, clean, graph=graph)
    assert np.isfinite(model.predict(noisy)).all()


@pytest.mark.slow
def test_baselines_are_what_they_are_called():
    clean, noisy, graph = weather(300)
    x, y = noisy[200:].copy(), clean[200:]
    x[:20, 3] = np.nan
    model = SignalRegressor(1, **QUICK).fit(noisy[:200], clean[:200], graph=graph)
    found = compare_baselines(model, noisy[:200], x, clean[:200], y)
    ends = np.stack([np.roll(x, 1, axis=1), np.roll(x, -1, axis=1)])
    for name, answer in (
        ("reading as it is", np.where(np.isnan(x), noisy[:200].mean(), x)),
        ("neighbours' mean", np.nanmean(ends, axis=0)),
        ("neighbours' median", np.nanmedian(ends, axis=0)),
        ("network", model.predict(x)),
    ):
        assert found[name] == pytest.approx(np.sqrt(np.mean((answer - y) ** 2))), name
    full = x[20:]
    found = compare_baselines(model, noisy[:200], full, clean[:200], y[20:])
    answer = np.empty_like(full)
    for node in range(6):
        columns = [np.stack([part[:, (node + step) % 6] for step in (-1, 0, 1)] + [np.ones(len(part))], 1)
                   for part in (noisy[:200], full)]  # fmt: skip
        answer[:, node] = columns[1] @ np.linalg.lstsq(columns[0], clean[:200, node])[0]
    assert found["linear least squares"] == pytest.approx(np.sqrt(np.mean((answer - y[20:]) ** 2)), rel=1e-2)
    assert found["each node alone"] > found["linear least squares"]
    with pytest.raises(ValueError, match="one feature and one target at every node"):
        compare_baselines(SignalRegressor(target_node=1, **QUICK).fit(noisy, clean[:, 1], graph=graph), noisy, noisy)


@pytest.mark.slow
def test_a_column_is_predicted_from_the_others(tmp_path):
    pandas = pytest.importorskip("pandas")
    _, noisy, graph = weather()
    table = pandas.DataFrame(noisy, columns=list("abcdef"))
    model = SignalRegressor(**QUICK).fit(table, "c", graph=graph)
    found = model.predict(table)
    assert found.shape == (160,)
    np.testing.assert_array_equal(model.predict(table.assign(c=0.0)), found)
    assert model.model_.input.mean.item() == pytest.approx(table.drop(columns="c")[:136].to_numpy().mean(), rel=1e-6)
    assert not np.array_equal(model.predict(table.assign(b=0.0)), found)
    assert model.score(table, "c") == model.score(table, table["c"]) == pytest.approx(r2_score(noisy[:, 2], found))
    model.save(tmp_path / "model.safetensors")
    same = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(same.predict(table.assign(c=np.nan), graph=graph), found)
    numbers = table.set_axis([30, 10, 20, 60, 50, 40], axis=1)
    np.testing.assert_array_equal(SignalRegressor(**QUICK).fit(numbers, "20", graph=graph).predict(numbers), found)
    alarm = table.assign(c=(table["c"] > 280).astype(float))
    assert SignalClassifier(epochs=20, random_state=0).fit(alarm, "c", graph=graph).score(alarm, "c") > 0.8
    for x, y, settings, message in (
        (noisy, "c", {}, "y must be targets, or the name of a column of a table X, got 'c' for an array"),
        (table, "g", {}, "y must be targets, or one of the columns a, b, c, d, e, f of X, got 'g'"),
        (table, "c", {"target_node": "b"}, "target_node must be 'c', as y, or left out, got 'b'"),
        (table, "c", {"missing": "refuse"}, "missing must be 'mask' to predict the column 'c'"),
    ):
        with pytest.raises(ValueError, match=message):
            SignalRegressor(**settings, **QUICK).fit(x, y, graph=graph)


def test_a_table_that_was_cut_to_nothing():
    pandas = pytest.importorskip("pandas")
    _, noisy, graph = weather()
    table = pandas.DataFrame(noisy)
    with pytest.raises(ValueError, match="X must hold times to learn from, got a table without rows"):
        SignalRegressor(task="denoise", **QUICK).fit(table[:-168], graph=graph)


def test_half_of_the_faults_in_training_last_for_a_window():
    readings, share, window = torch.ones(4000, 3, 8), 0.2, 4  # of two features

    def spoil(**faults):
        settings = {"noise": 0.0, "outliers": 0.0, "hide": 0.0, **faults}
        generator = torch.Generator().manual_seed(0)
        return corrupt(readings, **settings, generator=generator, window=window).view(4000, 3, window, 2)

    whole = share / 2
    hidden = spoil(hide=share).isnan()
    assert hidden.float().mean() == pytest.approx(whole + (1 - whole) * whole, abs=0.01)
    assert hidden.all(2).float().mean() == pytest.approx(whole, abs=0.01)
    assert (hidden.all(2)[..., 0] != hidden.all(2)[..., 1]).any()
    wrong = spoil(outliers=share)
    assert (wrong != 1).float().mean() == pytest.approx(whole + (1 - whole) * whole, abs=0.01)
    lasts = ((wrong != 1) & (wrong == wrong[:, :, :1])).all(2)
    assert lasts[..., 0].float().mean() == pytest.approx(whole * (1 - whole) ** window, abs=0.01)


@pytest.mark.slow
def test_a_sensor_that_is_off_by_a_constant_is_denoised():
    clean, _, graph = weather(500, 8)
    own, others = list[float](), list[float]()
    for seed in range(3):
        noisy = clean + np.random.default_rng(seed).normal(size=clean.shape) * 0.2
        model = SignalRegressor(task="denoise", window=4, epochs=30, random_state=seed)
        model.fit(noisy[:350], graph=graph)
        for node in (0, 3):
            broken = noisy[360:].copy()
            broken[:, node] += 50.0
            error = np.sqrt(np.mean((model.predict(broken) - clean[360:])[3:] ** 2, 0))
            own.append(float(error[node]))
            others.append(float(np.delete(error, node).mean()))
    assert max(own) < 2.0
    assert max(others) < 1.0
