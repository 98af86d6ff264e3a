"""Claims that were withdrawn stand on no page, and numbers that several pages tell are those of the rows on each."""

import re

import pytest

from benchmark_rows import Benchmarks
from evidence import Evidence
from exhibits import localizing
from facts import Facts
from graphact_lab.experiments.source_localization.experiment import TABLE_1
from graphact_lab.report import write_report
from graphact_lab.store import Store
from support.places import ROOT
from when import RESULTS
from when_tables import certain_pairs, verdicts

KINDS = {".md", ".py", ".j2", ".rst", ".cff", ".html"}
FOLDERS = ("docs", "studies", "packages", "examples")
# Each with a sentence that said so
WITHDRAWN = {
    r"from \**\d+\** (exchanges|values)": "beats the best one, with certainty, from 4 exchanges in source localization",
    r"(certainly ahead|certainty|significantly),? from \**\d": "family is certainly ahead from 41 in it",
    r"\d+ in consensus and \d+ in denoising on": "in one task, 6 in consensus and 9 in denoising on",
    r"pays_(where|from)": "{{ pays_where() }}",
    r"best pointwise network of up to three layers[^.]{0,60}(certain|significan)": (
        "beats the best pointwise network of up to three layers that was run, significantly"
    ),
    r"depth comes first, and then an activation": "**depth comes first, and then an activation that sees the graph.**",
    r"also for each message sent": "locating a source, there also for each message sent",
    r"gains most for an exchange": "`max-l` gains most for an exchange",
    r"what is left on a neighbou?rhood (activation|maximum)": "and what is left on a neighbourhood activation",
    r"what we would claim for these activations": "is what we would claim for these activations",
    r"no gain over the best pointwise (one|activation) is (statistically )?significant": (
        "In node classification no gain over the best pointwise activation is statistically significant"
    ),
    r"all gain over every pointwise activation in source localization": (
        "all gain over every pointwise activation in source localization"
    ),
}
LIMIT = "had at most three layers in this comparison"


def words_of(text):
    return " ".join(text.split())


def page(path):
    return words_of((ROOT / path).read_text())


def pages():
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CITATION.cff", ROOT / "results" / "README.md"]
    for folder in FOLDERS:
        found += [
            file for file in sorted((ROOT / folder).rglob("*")) if file.suffix in KINDS and "tests" not in file.parts
        ]
    return found


def withdrawn_in(text):
    return [pattern for pattern in WITHDRAWN if re.search(pattern, words_of(text), re.IGNORECASE)]


@pytest.fixture(scope="module")
def facts(results):
    return Facts(Evidence(results))


@pytest.fixture(scope="module")
def compared():
    return Benchmarks(RESULTS).comparable("node-classification")


@pytest.mark.parametrize(("pattern", "sentence"), WITHDRAWN.items())
def test_a_withdrawn_claim_is_found(pattern, sentence):
    assert pattern in withdrawn_in(f"Before it.\n{sentence.replace(' ', chr(10), 1)} and after.")


def test_withdrawn_claims_stand_on_no_page():
    found = {str(file.relative_to(ROOT)): withdrawn_in(file.read_text()) for file in pages()}
    assert len(found) > 200
    assert {path: patterns for path, patterns in found.items() if patterns} == {}


@pytest.mark.parametrize("path", ["README.md", "docs/reproduction.md", "docs/when-it-pays.md", "docs/choosing.md"])
def test_pages_that_speak_of_exchanges_name_the_limit(facts, path):
    assert LIMIT in facts.depth_limit()
    assert page(path).count(words_of(facts.depth_limit())) == 1


def test_the_headline_is_over_the_strongest_pointwise_activation_and_on_unseen_sources(facts):
    study = facts.study("source-localization", "converged")
    assert facts.strongest_pointwise(study, lambda method: localizing(method, 8)).method == "prelu"
    own, unseen = localizing("max-ga", 8), ("max-ga, raw signals", "prelu, raw signals")
    over = {method: facts.gap(study, own, localizing(method, 8)).strip("*+") for method in ("prelu", "relu")}
    text = page("README.md").partition("### What comes out")[2].partition("graphact-lab run")[0]
    numbers = [over["prelu"], facts.unseen_gap(*unseen).strip("*+"), over["relu"]]
    places = [text.index(number) for number in numbers]
    assert places == sorted(places)
    assert "." not in re.sub(r"\d\.\d|G\.A\.", "", text[places[0] : places[1]])  # in the same sentence
    fir = facts.gap(study, localizing("fir", 8), localizing("relu", 8)).strip("*+")
    assert text.index(fir) > places[1]


def test_the_same_numbers_stand_on_all_pages():
    """Numbers of source localization in the README are those of the tables of the reproduction."""
    readme, tables, details = (
        page(f"{name}.md") for name in ("README", "docs/reproduction", "docs/reproduction-details")
    )
    told = re.search(
        r"has (?P<mean>\d+\.\d) % right, (?P<over>\d+\.\d ± \d+\.\d) points more than PReLU.* never saw it has "
        r"(?P<unseen>\d+\.\d) %, (?P<gap>\S+ ± \S+) more .* The (?P<relu>\d+\.\d ± \d+\.\d) points over ReLU",
        readme,
    )
    cells = [cell.strip() for cell in re.search(r"\| Max G\.A\. \(2\) \|([^\n]*?✓[^✓]*✓[^✓]*✓)", tables)[1].split("|")]
    assert cells[-1].startswith(f"{told['mean']} ± ")
    of = {
        name: re.search(rf"\| {name} \| \S+ ± \S+ \|[^|]*\| \*\*-(.*?)\*\* \|", tables)[1] for name in ("PReLU", "ReLU")
    }
    assert of == {"PReLU": told["over"], "ReLU": told["relu"]}
    limits = re.search(r"Max G\.A\. falls from \S+ to (\S+) %; .*? and \+(\S+ ± \S+) from PReLU", tables)
    assert limits.groups() == (told["unseen"], told["gap"])
    assert f"| max-ga, raw signals | {told['unseen']} ±" in details


def test_the_counts_of_cells_agree_with_the_report_of_the_rows(facts, tmp_path):
    study = facts.study("source-localization", "converged")
    store = Store(ROOT / "results" / "source-localization-converged")
    write_report(store.rows(), tmp_path, command="\n".join(store.commands()))
    report = words_of((tmp_path / "tables" / "table-1-source-localization-paper-converged.md").read_text())
    (inside,) = re.findall(r"Inside: (\d+ of \d+) cells", report)
    assert facts.inside(study, 1).endswith(f" of {sum(map(len, TABLE_1.values()))}")
    assert facts.inside_with_every_hop(study) == inside
    text = page("docs/reproduction.md")
    assert f"{facts.inside(study, 1)} cells lie inside" in text
    assert f"counts {inside}" in text
    assert f"{facts.inside(study, 1)} cells" in page("README.md")


@pytest.mark.parametrize("path", ["README.md", "docs/index.md", "docs/choosing.md"])
def test_node_classification_is_told_alike(compared, path):
    found, pairs = verdicts(compared), certain_pairs(compared)
    text = page(path).lower()
    settings = len(compared)
    assert not found["gains"], "the sentences say none"
    assert f"in none of {settings} settings" in text
    assert f"in {len(found['losses'])} it loses" in text
    gained = f"of {pairs['count']} pairs of an activation and a setting {len(pairs['gains'])} gain significantly"
    assert gained in text
    sizes = {re.search(r"\+(\d\.\d) ±", line)[1] for line in pairs["gains"]}
    assert len(sizes) == 1
    assert f"{sizes.pop()} points each" in text
    assert all("a linear control, has" in line for line in pairs["gains"])
    assert page("docs/when-it-pays.md").count(f"Of all {pairs['count']} pairs") == 1


def test_losses_in_node_classification_are_told_to_their_size(compared):
    largest = -min(cell.gain().mean for cell in verdicts(compared)["losses"])
    assert f"up to {largest:.1f} points" in page("docs/choosing.md")


def test_gains_over_the_strongest_pointwise_activation_are_told_by_width(facts):
    """Of the activations that choosing.md names; the one that is not certain is named with its interval."""
    study, text = facts.study("source-localization", "converged"), page("docs/choosing.md")
    named = {"max-l": None, "median-l": 2, "max-ga": None}
    open_ones = []
    for features in (2, 4, 8):
        for method, hops in named.items():
            where = localizing(method, features, hops) if hops else localizing(method, features)
            for rival in ("relu", *facts.pointwise_run(study)):
                gap = facts.gap(study, where, localizing(rival, features))
                if "**" not in gap:
                    open_ones.append((features, method, rival, gap))
    assert [one[:3] for one in open_ones] == [(2, "max-l", "prelu")]
    assert f"`max-l` minus PReLU at F = 2 is {open_ones[0][3]}, not significant" in text


def test_promises_of_agents_name_their_conditions():
    text = page("docs/agents.md").lower()
    for promise, conditions in {
        "never uses a run number twice": ("one process", "lock", "log", "clock"),
        "lie on its own links": ("key", "secret", "honest"),
    }.items():
        (place,) = [found.start() for found in re.finditer(promise, text)]
        near = text[max(place - 400, 0) : place + 700]
        assert [word for word in conditions if word not in near] == [], promise
