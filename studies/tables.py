"""Tables of everything that was run, from the rows in results/, as CSV in docs/tables/.

    python studies/tables.py            write them again
    python studies/tables.py --check    compare what is there with the rows; exit status 1 where they differ
    python studies/tables.py --only rounds    one of them, in seconds

Pages, figures and the paper read these tables alone (studies/lookup.py). Intervals are of 95 % over graphs, or over
splits with the correction for their overlap. The rival of a network is the pointwise one that validates best in the
same setting; equal validation scores are told apart by fewer rounds, then by fewer parameters, then by the name.
"""

import argparse
import csv
import io
import json
import math
import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev

from authors import departures
from benchmark_rows import Benchmarks, is_ours, is_pointwise
from claims import CLAIMS
from evidence import PROBLEMS, RESULTS, Evidence, NotRunError, Study, preference
from graphact.registry import POINTWISE
from graphact.storage import write_atomically
from graphact_lab.experiments.recommendation.experiment import TABLE_2
from graphact_lab.experiments.rounds.experiment import TASKS
from graphact_lab.experiments.source_localization.experiment import TABLE_1
from graphact_lab.protocols import POOLING
from graphact_lab.statistics import bootstrap_interval, difference, holm, place_of
from graphact_lab.style import Variant
from rounds_cells import baselines_of, lines_of
from verdicts import judge

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "tables"
RIVALS = ("fir", "relu", *(method for method in POINTWISE if method != "identity"))
MARGIN = 1.0  # of the equivalence test, in percentage points
ON_CORA = ("gcn", "public", "kipf")
UNSEEN_SOURCES = {"random": "converged", "unseen": "converged, sources unseen"}
RELU = ("relu", None)
# Of the sources of a community seven train, one validates, two test; in benchmarks/unseen.py eight train, two test
AT_ROUNDS = {"random": "random at equal rounds", "unseen": "unseen at equal rounds"}
OWN_SETTINGS = ("digraf",)  # whose own settings no search here has varied


def compact(value):
    """Return a number with six digits, and any other value as it is."""
    if isinstance(value, bool) or not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.6g}"


def in_words(condition):
    """Return a condition as text."""
    return ", ".join(f"{key} {value}" for key, value in condition)


def with_interval(prefix, estimate):
    """Return a mean and its interval as columns."""
    low, high = estimate.interval()
    return {prefix: estimate.mean, f"{prefix}_low": low, f"{prefix}_high": high}


class Tables:
    """Every table by its name, as dictionaries."""

    results = RESULTS

    def __init__(self, results=RESULTS):
        self.results = Path(results)
        self.evidence = Evidence(results)

    @cached_property
    def benchmarks(self):
        """The rows of benchmarks."""
        return Benchmarks(self.results / "benchmarks")

    def make(self, name):
        """Return the lines of a table."""
        return list(self.makers[name]())

    @property
    def makers(self):
        """Functions that make the lines of each table."""
        tasks = any((self.results / f"rounds-{task}").exists() for task in TASKS[1:])
        return {
            **({"rounds-tasks": self.rounds_of_tasks} if tasks else {}),
            "cells": self.cells,
            "table-1": lambda: self.beside_the_paper("source-localization", TABLE_1),
            "table-2": lambda: self.beside_the_paper("recommendation", TABLE_2),
            "claims": self.claims,
            "contrasts": self.contrasts,
            "node-classification": self.node_classification,
            "node-scores": self.node_scores,
            "node-banks": self.node_banks,
            "equivalence": self.equivalence,
            "unseen": self.unseen,
            "choices": self.choices,
            "rounds": self.rounds,
            "authors-code": departures,
        }

    def cells(self):
        """Yield every network and baseline of the four experiments, with its gain over the rival and over FIR."""
        for study in sorted(self.evidence.studies()):
            groups = {}
            for cell in self.evidence.cells[study]:
                groups.setdefault((cell.features, cell.order, cell.condition), []).append(cell)
            for _, cells in sorted(groups.items(), key=str):
                rival = self.rival(study, cells)
                fir = next((cell for cell in cells if cell.method == "fir"), None)
                for cell in sorted(cells, key=str):
                    yield self._cell(study, cell, rival, fir)

    def rival(self, study, cells):
        """Return the pointwise network that validates best among cells of one setting; None where there is none."""
        rows = self.evidence.cells[study]
        known = [cell for cell in cells if cell.kind == "model" and cell.method in RIVALS and is_finite(rows[cell])]
        sign = 1 if study.measure.higher_is_better else -1

        def rank(cell):
            first = rows[cell][0]
            score = sign * mean_validation(rows[cell])
            return preference(score, first.get("exchanges"), first.get("parameters"), cell.method)

        return min(known, key=rank, default=None)

    def _cell(self, study, cell, rival, fir):
        rows = self.evidence.cells[study][cell]
        values, first = [row["value"] for row in rows], rows[0]
        line = {"experiment": study.experiment, "preset": study.preset, "protocol": study.protocol, "kind": cell.kind}
        line |= {"method": cell.method, "hops": cell.hops, "features": cell.features, "order": cell.order}
        line |= {"condition": in_words(cell.condition), "runs": len(rows), "mean": fmean(values)}
        line |= {
            "sd": stdev(values) if len(values) > 1 and is_finite(rows) else math.nan,
            "margin": self._margin(study, rows),
        }
        line |= {"near_chance": sum(value < 30 for value in values) / len(values)} if "loc" in study.experiment else {}
        if cell.kind == "model" and study.preset != "robustness":
            line |= {"validation": mean_validation(rows), "parameters": first.get("parameters")}
            line |= {"rounds": first.get("exchanges"), "best_in_last_quarter": fmean(map(is_late, rows))}
        for name, other in (("gain", rival), ("minus_fir", fir)):
            if other is None or other == cell or cell.kind != "model":
                continue
            line |= {"rival": other.method} if name == "gain" else {}
            try:
                line |= with_interval(name, self._gain(study, rows, self.evidence.cells[study][other]))
            except ValueError:
                continue  # no run in common
        return line

    def _margin(self, study, rows):
        """Return half the interval of a mean."""
        return self._gain(study, rows, 0.0).margin if is_finite(rows) else math.nan

    def _gain(self, study, rows, others):
        """Return the paired difference over the runs that both have."""
        if others != 0.0:
            places = {place_of(row) for row in rows} & {place_of(row) for row in others}
            rows, others = ([row for row in some if place_of(row) in places] for some in (rows, others))
            if not places or not (is_finite(rows) and is_finite(others)):
                raise ValueError("no finite run in common")
        return difference(rows, others, overlap=study.measure.overlap)

    def beside_the_paper(self, experiment, numbers):
        """Yield each number of Table 1 or 2 beside ours, under both protocols."""
        for protocol in ("converged", "paper"):
            study = next(s for s in self.evidence.studies() if s == (experiment, "paper", protocol))
            for (method, hops), line in numbers.items():
                for column, (mean, sd) in line.items():
                    cell = self._published_cell(study, method, hops, column)
                    values = [row["value"] for row in self.evidence.cells[study][cell]]
                    yield {
                        **{"protocol": protocol, "method": method, "hops": cell.hops, "column": column},
                        **{"runs": len(values), "mean": fmean(values), "sd": stdev(values)},
                        **{"paper_mean": mean, "paper_sd": sd, "inside": abs(fmean(values) - mean) <= sd + 1e-9},
                    }

    def _published_cell(self, study, method, hops, column):
        """Return the cell of a number of the paper; where it states no hops, that of one hop."""
        hops = hops or (None if method == "relu" else 1)
        for cell in self.evidence.cells[study]:
            is_there = cell.condition == (("film", column),) or (cell.features, cell.order) == (column, 4)
            if (cell.method, cell.hops) == (method, hops) and is_there:
                return cell
        raise NotRunError(f"{method} was not run at {column}")

    @cached_property
    def verdicts(self):
        """The verdicts on all claims."""
        return judge(self.evidence, CLAIMS)

    def claims(self):
        """Yield a claim under a protocol: verdict, and the contrast that stands most in its way."""
        for verdict in self.verdicts:
            claim, study = verdict.claim, verdict.study
            line = {"experiment": study.experiment, "preset": study.preset, "protocol": study.protocol}
            line |= {"key": claim.key, "claim": claim.text, "where": claim.where, "family": claim.family}
            line |= {"verdict": verdict.word, "holding": "", "contrasts": "", "missing": len(verdict.missing)}
            if verdict.estimates:
                contrast, found = verdict.weakest
                line |= {"holding": verdict.num_holding, "contrasts": len(verdict.estimates)}
                line |= {"weakest": contrast.label, **with_interval("difference", found)}
                line |= {"p_holm": verdict.adjusted, "could_show": found.detectable(), "units": found.units}
            yield line

    def contrasts(self):
        """Yield every contrast of every claim."""
        for verdict in self.verdicts:
            claim, study = verdict.claim, verdict.study
            for contrast, found in verdict.estimates.items():
                line = {"experiment": study.experiment, "preset": study.preset, "protocol": study.protocol}
                line |= {"key": claim.key, "contrast": contrast.label, "says": claim.says, "bound": claim.bound}
                line |= {"margin": claim.margin, **with_interval("difference", found)}
                values = getattr(found, "values", ())
                if study.measure.overlap is None and len(values) > 2:
                    low, high = bootstrap_interval(values)
                    line |= {"bootstrap_low": low, "bootstrap_high": high}
                yield line | {"p": claim.p(found), "p_equivalent": found.p_within(claim.margin), "units": found.units}

    def node_classification(self):
        """Yield, of each setting of node and graph classification, the activations that stand for their kinds."""
        for experiment in ("node-classification", "graph-classification"):
            cells = self.benchmarks.comparable(experiment)
            adjusted = holm([cell.gain().p_unlike() for cell in cells])
            for cell, p in zip(cells, adjusted, strict=True):
                gain, control = cell.gain(), max(cell.controls, key=cell.mean, default=None)
                line = setting_of(cell) | {"homophily": self.benchmarks.graphs.get(cell.setting.level, math.nan)}
                for kind, chosen, is_kind in (
                    ("pointwise", cell.pointwise, is_pointwise),
                    ("ours", cell.ours, is_ours),
                ):
                    line |= {kind: Variant(*chosen).label, f"{kind}_of": sum(map(is_kind, cell.rows))}
                    line |= {f"{kind}_mean": cell.mean(chosen), f"{kind}_rounds": cell.rows[chosen][0]["exchanges"]}
                line |= {
                    "chosen_on": "other splits" if cell.tuned else "reported splits",
                    **with_interval("gain", gain),
                }
                line |= {"could_show": gain.detectable(), "p_holm": p, "effective_splits": cell.effective}
                if control:
                    line |= {"linear_control": Variant(*control).label, "control_mean": cell.mean(control)}
                yield line

    def node_scores(self):
        """Yield every activation in every setting, with its gain over the pointwise one that validates best.

        A gain is the smaller of those over that one and over the pointwise one with the highest test mean; p is
        adjusted over all of our activations in all comparable settings of an experiment (Holm).
        """
        for experiment in ("node-classification", "graph-classification", "robustness"):
            lines, tested = [], []
            comparable = {cell.setting for cell in self.benchmarks.comparable(experiment)}
            for cell in self.benchmarks.of(experiment):
                for variant in sorted(cell.rows, key=str):
                    line = setting_of(cell) | {"method": variant[0], "hops": variant[1]}
                    first = cell.rows[variant][0]
                    line |= {"untuned": variant[0] in OWN_SETTINGS, "pools": variant[0] in POOLING}
                    line |= {"parameters": first["parameters"], "rounds": first["exchanges"]}
                    lines.append(line)
                    if cell.has_diverged(variant):
                        line["mean"] = "diverged"
                        continue
                    values = [row["value"] for row in cell.rows[variant]]
                    line |= {"runs": len(values), "mean": fmean(values), "sd": stdev(values)}
                    if cell.setting in comparable and variant != cell.pointwise:
                        gain = cell.strict_gain(variant)
                        line |= with_interval("gain", gain)
                        tested += [(line, gain)] if is_ours(variant) else []
            for (line, _), p in zip(tested, holm([gain.p_unlike() for _, gain in tested]), strict=True):
                line["p_holm"] = p
            yield from lines

    def node_banks(self):
        """Yield adaptive banks in place of the convolution of a setting, with ReLU: minus that, and minus its rival."""
        for cell in self.benchmarks.of("node-classification"):
            protocol, _, bank = cell.setting.protocol.partition(", convolution bank-")
            usual = self.benchmarks.cells.get(replace(cell.setting, protocol=protocol))
            if not bank or usual is None:
                continue
            rows, first = cell.rows[RELU], cell.rows[RELU][0]
            line = setting_of(usual) | {"bank": f"bank-{bank}", "device": first["device"], "runs": len(rows)}
            line |= {"parameters": first["parameters"], "rounds": first["exchanges"]}
            line |= {"mean": cell.mean(RELU), "relu_mean": usual.mean(RELU)}
            line |= {"relu_parameters": usual.rows[RELU][0]["parameters"], "rival": Variant(*usual.pointwise).label}
            for name, other in (("minus_relu", RELU), ("gain", usual.pointwise)):
                line |= with_interval(name, difference(rows, usual.rows[other], overlap=usual.setting.overlap))
            yield line

    def equivalence(self):
        """Yield two one-sided tests of each of our activations against the best pointwise one, GCN on Cora."""
        for cell in self.benchmarks.comparable("node-classification"):
            if cell.setting.level != "cora" or cell.setting.protocol not in ON_CORA:
                continue
            for variant in sorted(filter(is_ours, cell.rows), key=str):
                gain = cell.gain(variant)
                low, high = gain.interval(0.9)
                line = setting_of(cell) | {
                    "method": variant[0],
                    "hops": variant[1],
                    "stands_for_kind": variant == cell.ours,
                }
                line |= {
                    "pointwise": Variant(*cell.pointwise).label,
                    "difference": gain.mean,
                    "low_90": low,
                    "high_90": high,
                }
                p = gain.p_within(MARGIN)
                line |= {"margin": MARGIN, "p": p, "equivalent": p < 0.05, "could_show": gain.detectable()}
                yield line | {"runs": gain.units, "effective_splits": cell.effective}

    def unseen(self):
        """Yield networks and baselines on sources or days that training never saw, and on samples at random."""
        for experiment in ("source-localization", "denoising"):
            rows = json.loads((self.results / "unseen" / f"unseen-{experiment}.json").read_text())
            for kind, method in dict.fromkeys((row["kind"], row["method"]) for row in rows):
                own = [row for row in rows if (row["kind"], row["method"]) == (kind, method)]
                line = {"experiment": experiment, "split": kind, "method": method, "runs": len(own)}
                line |= {"mean": fmean(row["value"] for row in own), "sd": stdev(row["value"] for row in own)}
                rivals = {"max-ga, raw signals": "prelu, raw signals", "preset `best`, max-ga": "preset `best`, relu"}
                if rival := rivals.get(method):
                    others = [row for row in rows if (row["kind"], row["method"]) == (kind, rival)]
                    line |= {
                        "rival": rival,
                        **with_interval("gain", difference(own, others, overlap=own[0]["overlap"])),
                    }
                yield line
        yield from self.unseen_methods()
        for (method, sources), values in baselines_of(self.results / "rounds").items():
            place = {"experiment": "source-localization", "split": AT_ROUNDS[sources], "method": method}
            yield place | {"runs": len(values), "mean": fmean(values), "sd": stdev(values)}

    def unseen_methods(self):
        """Yield the methods of Table 1 on unseen sources, where those were run, and on the random split."""
        where = {"experiment": "source-localization", "preset": "paper"}
        studies = {split: Study(*where.values(), protocol) for split, protocol in UNSEEN_SOURCES.items()}
        if studies["unseen"] not in self.evidence.cells:
            return
        common = [cell for cell in self.evidence.cells[studies["unseen"]] if cell.kind == "model"]
        for split, study in studies.items():
            lines = list[dict]()
            cells = [cell for cell in common if cell in self.evidence.cells[study]]
            for cell in sorted(cells, key=str):
                rows = self.evidence.cells[study][cell]
                rival = self.rival(study, [other for other in cells if other.features == cell.features])
                values = [row["value"] for row in rows]
                line = {"experiment": study.experiment, "split": split, "method": cell.method, "runs": len(rows)}
                line |= {"mean": fmean(values), "sd": stdev(values), "hops": cell.hops, "features": cell.features}
                if rival not in (None, cell):
                    gain = self._gain(study, rows, self.evidence.cells[study][rival])
                    line |= {"rival": rival.method, **with_interval("gain", gain), "gain_p": gain.p_unlike()}
                lines.append(line)
            tested = [line for line in lines if "gain_p" in line]
            for line, p in zip(tested, holm([line["gain_p"] for line in tested]), strict=True):
                line["gain_p_holm"] = p
            yield from lines

    def rounds(self):
        """Return the cells of quality against rounds."""
        return lines_of(self.results / "rounds")

    def rounds_of_tasks(self):
        """Yield the cells of consensus and denoising against rounds, where those were run."""
        for task in TASKS[1:]:
            yield from ({"experiment": task, **line} for line in lines_of(self.results / f"rounds-{task}", task))

    def choices(self):
        """Yield source localization with one choice of the protocol changed at a time."""
        stored = json.loads((self.results / "choices" / "choices.json").read_text())
        rows = {(one["activation"], one["choice"]): one["rows"] for one in stored}
        for (activation, choice), own in rows.items():
            line = {
                "activation": activation,
                "choice": choice,
                "runs": len(own),
                "mean": fmean(r["value"] for r in own),
            }
            if choice != "converged":
                line |= with_interval("minus_converged", difference(own, rows[activation, "converged"]))
            if activation != "relu" and ("relu", choice) in rows:
                line |= with_interval("minus_relu", difference(own, rows["relu", choice]))
            yield line


def mean_validation(rows):
    """Return the mean validation score; NaN where the protocol has no validation samples."""
    scores = [row["validation"] for row in rows]
    return math.nan if None in scores else fmean(scores)


def is_late(row):
    """Return whether a network validates best in the last quarter of its epochs."""
    return row["best_epoch"] > 0.75 * row["epochs"]


def is_finite(rows):
    return all(math.isfinite(row["value"]) for row in rows)


def setting_of(cell):
    """Return the columns that name a setting of a benchmark."""
    where = cell.setting
    return {"experiment": where.experiment, "protocol": where.protocol, "width": where.width, "level": where.level}


def to_csv(lines):
    """Return a table as text; a table without lines is empty."""
    heads = list(dict.fromkeys(key for line in lines for key in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: compact(value) for key, value in line.items()} for line in lines)
    return text.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--only", nargs="+", choices=list(Tables.__new__(Tables).makers), help="these tables alone")
    options = parser.parse_args()
    try:
        tables = Tables(options.directory)
        made = {f"{name}.csv": to_csv(tables.make(name)) for name in options.only or tables.makers}
    except PROBLEMS as problem:
        sys.exit(str(problem))
    changed = [
        name for name, text in made.items() if not (path := options.out / name).exists() or path.read_text() != text
    ]
    sys.stdout.writelines(f"{name} differs from the rows\n" for name in changed)
    if not options.check:
        options.out.mkdir(parents=True, exist_ok=True)
        for name in changed:
            write_atomically(options.out / name, made[name].encode())
    return int(options.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
