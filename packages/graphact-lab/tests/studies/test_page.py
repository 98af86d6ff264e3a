"""The pages of results say what the tables say, hold no number that is not looked up, and are short."""

import json
import re

import pytest

from air_time import AirTime
from draw import FIGURES, spread_out
from evidence import NotRunError
from graphact_lab.experiments.scheduling.experiment import WIDTH
from graphact_lab.experiments.scheduling.report import REPEATED_RULE, RULE
from graphact_lab.statistics import ALPHA
from lookup import KINDS, Lookup, signed
from page import PAGES, TEMPLATES, literal_numbers, render_pages, wrapped
from support.places import ROOT
from timings import FOLDER as TIMES
from timings import Timings, everyday

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def known():
    return Lookup()


@pytest.fixture(scope="module")
def pages(known):
    return render_pages(known)


@pytest.mark.parametrize("path", PAGES.values())
def test_pages_are_what_templates_and_tables_give(pages, path):
    assert (ROOT / path).read_text() == pages[path], "run make pages"


@pytest.mark.parametrize("name", PAGES)
def test_templates_hold_no_results(name):
    assert literal_numbers((TEMPLATES / name).read_text()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Accuracy is 73.9 % at F = 8.", ["73.9"]),
        ("{{ mean(x, 8) }} and `0.5`, F = 2, 4 and 8, Table 1, K = 1 to 8, [there](page.md#3), (2003)", []),
        ("by 0.8±0.6 points", ["0.8±0.6"]),
        ("13 to 26", ["13", "26"]),
    ],
)
def test_literal_numbers_are_found(text, found):
    assert literal_numbers(text) == found


def test_a_changed_table_changes_the_page(known, pages):
    changed = Lookup()
    changed.tables = {name: [dict(line) for line in lines] for name, lines in known.tables.items()}
    line = changed.locating("max-ga", 2)
    assert f"gains {known.gain(line)}" in pages["docs/results.md"]
    line["gain"] += 1
    found = render_pages(changed)["docs/results.md"]
    assert found != pages["docs/results.md"]
    assert f"gains {changed.gain(line)}" in found


def test_sentences_that_rows_no_longer_say_stop_the_page(known):
    assert known.sure(True, "all do") == "all do"
    with pytest.raises(NotRunError, match="rows no longer say: all do"):
        known.sure(False, "all do")
    with pytest.raises(ValueError, match="source must be one of"):
        known.stated("0.5", "somewhere")
    with pytest.raises(NotRunError, match="must have one line"):
        known.locating("max-ga")


def test_differences_are_bold_where_the_interval_leaves_out_zero():
    assert signed(1.5, 0.5, 2.5, 1) == "**+1.5 ± 1.0**"
    assert signed(-1.5, -3.5, 0.5, 1) == "-1.5 ± 2.0"


def test_paragraphs_are_wrapped_and_tables_are_not():
    long = " ".join(["word"] * 60)
    found = wrapped(f"{long}\n\n| {long} |\n\n- {long}\n- b\n\n```\n{long}\n```\n").splitlines()
    assert [line for line in found if len(line) > 100] == [f"| {long} |", long]
    assert "- b" in found
    assert wrapped("17 of 18\nlie inside") == "17 of 18 lie inside\n"


def test_the_winner_is_named_by_validation(known):
    winner = known.winner()
    others = [known.locating(method, hops) for method in ("max-l", "max-ga", "median-ga") for hops in (1, 2)]
    assert winner["validation"] > max(one["validation"] for one in others)
    assert known.name(winner) in (DOCS / "results.md").read_text().partition("## Tables")[0]


def test_pages_are_short_and_their_files_are_there():
    prose = {}
    for name in ("results", "choosing", "performance", "scheduling"):
        text = (DOCS / f"{name}.md").read_text()
        links = re.findall(r"\]\(((?:figures|tables)/[^)#]+)", text)
        assert [link for link in links if not (DOCS / link).exists()] == []
        plain = re.sub(r"(?s:```.*?```)|^[|!].*$", "", text, flags=re.MULTILINE)
        prose[name] = len(plain.split())
        assert plain.count("\n## ") == text.count("\n## ")
    assert prose["results"] <= 1500
    assert prose["choosing"] <= 600
    assert prose["performance"] <= 1000
    assert prose["scheduling"] <= 900


def test_figures_on_the_page_are_those_that_are_drawn(known):
    shown = set(re.findall(r"figures/([\w-]+)\.svg", (DOCS / "results.md").read_text()))
    assert shown == {name for name in FIGURES if not name.startswith("rounds")} | {
        f"rounds-{split}" for split in known.rounds_drawn()
    }


@pytest.mark.slow
def test_figures_show_the_tables_with_their_intervals(known):
    axes = FIGURES["lost-links"](known).axes[0]
    container = axes.containers[0]
    line = known.agreeing("max-ga", 1, loss=0.15)
    assert container.lines[0].get_xydata()[-1] == pytest.approx((15, line["mean"]))
    (bars,) = container.lines[2]
    assert bars.get_segments()[-1][:, 1] == pytest.approx(
        (line["mean"] - line["margin"], line["mean"] + line["margin"])
    )
    forest = FIGURES["node-gains"](known).axes[0]
    assert len(forest.containers) == len(known.settings())
    places = spread_out([1.0, 1.0, 5.0], 1.0)
    assert places[2] == 5
    assert abs(places[0] - places[1]) == pytest.approx(1)


def test_numbers_of_choosing_are_those_of_the_tables(known):
    """A page that is written by hand: each of its numbers is a lookup, and there is no other."""
    winner, text = known.winner(), " ".join((DOCS / "choosing.md").read_text().split())
    random, unseen = (
        [known.line("rounds", split=split, rounds=4, kind=kind) for kind in ("max-l", "bank-max")]
        for split in ("random", "unseen")
    )
    metropolis = known.cell("consensus", "least-squares filter of order 10 with Metropolis weights")
    where = {"experiment": "source-localization", "split": "random"}
    raw, prepared = (
        known.line("unseen", method=name, **where) for name in ("relu, raw signals", "preset `best`, relu")
    )
    pna, prelu = (
        known.line("rounds", split=split, rounds=rounds, kind=kind)
        for split, rounds, kind in (("unseen", 6, "bank-pna"), ("random", 4, "prelu"))
    )
    readings = errors_of_faulty_sensors()
    quoted = [
        f"{known.name(winner)} gains {known.gain(winner)} points over {known.name(known.best_pointwise(winner))}",
        f"with {winner['rounds']} rounds against {known.best_pointwise(winner)['rounds']}",
        f"`max-l` {known.gain(known.locating('max-l', 1))} with {known.locating('max-l', 1)['rounds']}",
        f"on unseen sources {known.gain(known.paper_unseen(winner['method'], winner['hops']))}",
        f"and {known.gain(known.paper_unseen('max-l', 1))} over Maxout",
        f"of {len(known.settings())} settings {len(known.settings(1))} gain significantly",
        f"{len(known.settings(-1))} lose, up to {known.largest_loss():.1f} points",
        f"an error of {known.mean(metropolis, 6)} after ten rounds",
        f"adaptive banks lose {known.banks_range()} points on Cora and CiteSeer",
        f"the best network {known.mean(known.best_in_consensus())} with the inputs as they come",
        f"and {known.mean(known.best_prepared_consensus())} with prepared ones",
        f"a nearest neighbour by angle locates {known.mean(known.seeing_all('nearest-neighbor', 'unseen'))} %",
        f"the best network at equal rounds {known.mean(known.best_by_test('unseen'))} %",
        f"with ReLU from {known.mean(raw)} to {known.mean(prepared)} %",
        f"nine rounds more, gains {known.gain(known.best_of('source-localization'))} points over Maxout",
        f"minus PNA is {known.gain(pna, 'shift')} points in six rounds on unseen sources",
        f"errors of {readings['bank of medians', 2]} and {readings['GELU (pointwise)', 2]} K",
        f"PReLU has {prelu['parameters']}, `max-l` {random[0]['parameters']}, the bank {random[1]['parameters']}",
        f"At {random[0]['rounds']} rounds",
        f"gains {known.gain(random[0])} points over {KINDS[random[0]['rival']]} on a random split",
        f"an adaptive bank of the maximum {known.gain(random[1])}",
        f"they gain {known.gain(unseen[0])} and {known.gain(unseen[1])}",
    ]
    for words in quoted:
        assert words in text
        text = text.replace(words, "")
    assert literal_numbers(text) == []
    assert "at equal rounds no adaptive bank gains" in text
    assert known.no_bank_gains("denoising")
    assert {known.paper_unseen("max-l", hops)["rival"] for hops in (1, 2)} == {"maxout"}
    assert "and four lead" in text
    assert known.four_functions_lead()
    assert "No bank is significantly better" in text
    assert known.shifts("bank-pna", 1) + known.shifts("bank-pna", -1) == []
    assert pna["shift_p_holm"] >= ALPHA
    assert known.best_of("source-localization")["rival"] == "maxout"
    for name, rounds in (("Median L.", 2), ("Median G.A.", 3)):
        assert readings[name, rounds] > readings["GELU (pointwise)", rounds]
    assert "ahead of SAGE-max on a random split" in text
    wide = [line for line in known.shifts("bank-max", split="random") if line["shift_networks"] == 160]
    assert wide
    assert [line for line in wide if line not in known.shifts("bank-max", 1)] == []


def errors_of_faulty_sensors():
    """Return the error over all stations by method and rounds, as the page on sensors prints it."""
    page = (DOCS / "sensors.md").read_text()
    found = re.findall(r"^\| ([^|]+) \| (\d) \| ([\d.]+) \| [\d.]+ \| [\d.]+ \|$", page, re.MULTILINE)
    return {(method, int(rounds)): error for method, rounds, error in found}


def test_numbers_of_link_scheduling_are_those_of_its_rows():
    air = AirTime()
    lossy = {"graphs": "random", "loss": 0.2}
    rules = [row for row in air.rows if row["kind"] == "baseline" and row.get("condition") == lossy]
    once = {row["rounds"]: row["value"] for row in rules if row["method"] == RULE}
    repeated = {row["rounds"]: row["value"] for row in rules if row["method"] == REPEATED_RULE}
    assert air.rule_table()[3][2:] == [f"{max(once[m] for m in once if m <= n):.3f}" for n in air.budgets]
    assert air.rule_table()[4][3:] == [f"{repeated[n]:.3f}" for n in air.budgets[1:]]
    usual = [row for row in air.rows if row.get("condition") == {"graphs": "random"}]
    own = [row for row in usual if row["method"] == "bank" and (row["rounds"], row["setting"]) == (2, WIDTH)]
    rule = max(row["value"] for row in usual if row["method"] == RULE and row["rounds"] <= 2)
    gap = 100 * (sum(row["value"] for row in own) / len(own) - rule)
    assert air.gap("bank", 2).strip("*").startswith(f"{gap:+.1f} ± ")
    heads, *body = air.stable_table()
    for contention, *cells in body:
        for name, cell in zip(heads[1:], cells, strict=True):
            assert cell.startswith(f"{air.stable(name, int(contention)):.2f} (")


@pytest.mark.parametrize("path", ["README.md", "docs/index.md"])
def test_node_classification_is_told_alike(known, path):
    text = " ".join((ROOT / path).read_text().split()).lower()
    for told in re.findall(r"of (\d+) settings", text):
        assert int(told) == len(known.settings())
    for told in re.findall(r"in (\d+) it loses|in (\d+) there is a loss", text):
        assert int("".join(told)) == len(known.settings(-1))
    for pairs, gains in re.findall(r"of (\d+) pairs of an activation and a setting (\d+) gain", text):
        assert (int(pairs), int(gains)) == (len(known.pairs()), len(known.pairs(1)))


def test_the_readme_quotes_gains_over_the_strongest_rival_and_losses_of_banks(known):
    text = " ".join((ROOT / "README.md").read_text().split())
    line = known.locating("max-ga", 1)
    gain = known.gain(line).strip("*")
    rounds = f"with {line['rounds']} rounds against {known.best_pointwise(line)['rounds']}"
    equal = known.line("rounds", split="random", rounds=4, kind="max-ga")
    assert equal["rival"] == "prelu"
    told = f"{gain} points over {known.name(known.best_pointwise(line))} {rounds}"
    assert f"{told}, but {known.gain(equal).strip('*')} at 4 each" in text
    for page in (text, " ".join((DOCS / "index.md").read_text().split())):
        assert f"banks lose {known.banks_range()} points on Cora and CiteSeer" in page
    assert known.banks_lose("cora", "citeseer")


def test_promises_of_agents_name_their_conditions():
    """In the same line of the table of promises, with the test that holds them."""
    lines = (DOCS / "agents-protocol.md").read_text().lower().splitlines()
    for promise, conditions in {
        "never uses a run number twice": ("log survives", "durable", "one_folder_is_for_one_agent"),
        "lie on its own links": ("keys", "secret", "honest"),
    }.items():
        (line,) = [line for line in lines if promise in line]
        assert [word for word in conditions if word not in line] == [], promise


def test_times_are_shown_beside_those_of_pyg(tmp_path):
    times = {"ReLU": 0.5, "max-ga": 1.0, "PyG max": 4.0, "median-ga": 2.0, "kernel-ga": 3.0, "PyG kernel": 6.0}
    body = everyday({"a graph": times})
    assert body[0] == ["milliseconds", "a graph"]
    assert body[2:5] == [["max-ga / PyG", "1 / 4"], ["median-ga / PyG", "2 / -"], ["kernel-ga / PyG", "3 / 6"]]
    assert body[-1] == ["max-ga over PyG", "0.25"]
    assert Timings(tmp_path).rows("everyday-cpu") is None


def test_speeds_of_accelerated_layers_are_told_alike():
    """In the guide on PyG and in the README, by the rows that the page on performance shows."""
    rows = Timings().rows("aggregations-cpu")["128 molecules"]
    table = re.findall(
        r"^\| (`\w+`[^|]*) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (DOCS / "pyg.md").read_text(), re.MULTILINE
    )
    assert len(table) == 7
    for layer, *told in table:
        row = rows[layer.replace("`,", "").replace("`", "").replace("PNA 4", "PNA, 4")]
        assert told == [f"{row['pyg']:.1f}", f"{row['graphact']:.1f}", f"{row['pyg'] / row['graphact']:.1f}"]
    names = ("SAGEConv mean", "SAGEConv max", "SAGEConv median", "PNA, 4 layers")
    mean, largest, median, pna = (row["pyg"] / row["graphact"] for row in map(rows.get, names))
    told = f"`SAGEConv` is {mean:.1f} (mean), {largest:.1f} (max) to {median:.0f} times (median) as fast, "
    told += f"`PNA` {pna:.1f} times"
    assert told in (ROOT / "README.md").read_text()
    large = Timings().rows("aggregations-h200")["169k nodes, wide"]["PNA, 3 layers"]
    assert (
        f"an H200 gains on large graphs: `PNA` {large['pyg'] / large['graphact']:.1f} times"
        in (ROOT / "README.md").read_text()
    )


def test_compiled_times_are_shown_by_mode(tmp_path):
    times = {"ReLU": {"eager": 1.0, "compiled": 3.0}, "max-ga": {"eager": 2.0, "compiled": 4.0}}
    times |= {"PyG max": {"eager": 5.0}}
    found = {"milliseconds": {"activation, small": times, "network, small": {}}}
    (tmp_path / "rows.json").write_text(json.dumps(found))
    timings = Timings(tmp_path)
    assert timings.compiled_rows("rows", "activation") == [
        ["activation: eager / compiled", "small"],
        ["ReLU", "1.00 / 3.00"],
        ["max-ga", "2.00 / 4.00"],
        ["PyG max", "5.00 / -"],
    ]
    assert timings.gains_of_mode("rows", "activation", "compiled") == [0.5]
    assert timings.peer_over_ours("rows", "small", "eager") == 2.5


def test_rows_of_times_name_their_machine_and_are_no_quotes():
    for path in TIMES.glob("*.json"):
        machine = Timings().rows(path.stem)["machine"]
        assert {"device", "processor", "cores", "load", "torch", "python"} <= set(machine)
