"""Numbers of pages, figures and the paper: lookups in docs/tables/, as text."""

import csv
from functools import cached_property
from pathlib import Path
from statistics import fmean, mode

from evidence import NotRunError
from graphact_lab.statistics import ALPHA, holm
from graphact_lab.style import Variant, title_of

FOLDER = Path(__file__).parent.parent / "docs" / "tables"
DIGITS = {"source-localization": 1, "consensus": 4, "denoising": 3, "recommendation": 3}
SOURCES = ("the paper", "the protocol", "a definition")
FILMS = {"toy-story": "Toy Story", "contact": "Contact", "return-of-the-jedi": "Return of the Jedi"}
CITATIONS = ("cora", "citeseer")  # where banks were run
LITERAL = {"consensus": "readout-bias"}  # the text's training at every order, where `paper` has two orders
VERDICTS = ("supported", "not after Holm", "in part", "mixed", "no difference", "undecided", "contradicted", "not run")
POINTWISE_KINDS = {
    **{"gelu": "GELU", "prelu": "PReLU", "relu": "ReLU", "silu": "SiLU"},
    **{"leaky-relu": "LeakyReLU", "tanh": "tanh"},
}
LINEAR_KINDS = {
    "mean-ga": "Mean G.A., a linear control",
    "bank-mean": "adaptive bank (mean, a linear control)",
}
KINDS = {
    **POINTWISE_KINDS,
    **{"max-l": "Max L.", "median-l": "Median L.", "median-ga": "Median G.A."},
    **{"max-ga": "Max G.A.", "max-ga-unshifted": "Max G.A. with the unshifted term"},
    **LINEAR_KINDS,
    **{"bank-max": "adaptive bank (max)", "bank-median": "adaptive bank (median)"},
    **{"bank-max-min": "adaptive bank (max, min)", "bank-pna": "adaptive bank (four functions)"},
    **{"sage-max": "SAGE-max", "pna": "PNA", "gatv2": "GATv2"},
}


def as_value(text):
    """Return the value of a field: a number, a truth value, None where it is empty, or text."""
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text or None


def read_table(file):
    """Return the lines of a table as dictionaries."""
    with file.open(newline="") as stream:
        return [{key: as_value(text) for key, text in line.items()} for line in csv.DictReader(stream)]


def signed(mean, low, high, digits):
    """Return a difference with half of its interval, bold where the interval excludes 0."""
    text = f"{mean:+.{digits}f} ± {(high - low) / 2:.{digits}f}"
    return f"**{text}**" if low > 0 or high < 0 else text


class Lookup:
    """The tables of a folder, and what sentences say of them."""

    def __init__(self, folder=FOLDER):
        self.folder = Path(folder)

    @cached_property
    def tables(self):
        """Every table by its name."""
        optional = {"rounds-tasks": []}  # which rows may not fill yet
        return optional | {file.stem: read_table(file) for file in sorted(self.folder.glob("*.csv"))}

    @staticmethod
    def stated(text, source):
        """Return a number that no row gives; whoever reads the template sees where it comes from."""
        if source not in SOURCES:
            raise ValueError(f"source must be one of {SOURCES}, got {source!r}")
        return text

    @staticmethod
    def sure(holds, words):
        """Return words that rest on rows; fail where these no longer say so."""
        if not holds:
            raise NotRunError(f"rows no longer say: {words}")
        return words

    def lines(self, table, **where):
        """Return the lines of a table with these values."""
        return [line for line in self.tables[table] if all(line[key] == value for key, value in where.items())]

    def line(self, table, **where):
        """Return the one line of a table with these values."""
        found = self.lines(table, **where)
        if len(found) != 1:
            raise NotRunError(f"{table}.csv must have one line with {where}, got {len(found)}")
        return found[0]

    def cell(self, experiment, method, protocol="converged", *, preset="paper", condition=None, **where):
        """Return the line of a network or baseline of one of the four experiments."""
        fixed = {"experiment": experiment, "preset": preset, "protocol": protocol, "condition": condition}
        return self.line("cells", method=method, **fixed, **where)

    def locating(self, method, hops=None, features=8, order=4, protocol="converged"):
        """Return the line of a network of source localization."""
        return self.cell("source-localization", method, protocol, hops=hops, features=features, order=order)

    def agreeing(self, method, hops=None, protocol="converged", order=20, loss=None):
        """Return the line of a network of consensus."""
        condition = f"loss_probability {loss}" if loss else None
        return self.cell("consensus", method, protocol, hops=hops, order=order, condition=condition)

    def denoising(self, method, hops=None, order=1, protocol="converged", snr=3.0):
        """Return the line of a network of denoising with four features."""
        condition = f"snr_db {snr}"
        return self.cell("denoising", method, protocol, hops=hops, order=order, features=4, condition=condition)

    def mean(self, line, digits=None):
        """Return the mean of a line as text."""
        return f"{line['mean']:.{DIGITS.get(line.get('experiment'), 1) if digits is None else digits}f}"

    def gain(self, line, prefix="gain", digits=None):
        """Return a difference of a line as text, bold where its interval excludes 0."""
        digits = DIGITS.get(line.get("experiment"), 1) if digits is None else digits
        return signed(line[prefix], line[f"{prefix}_low"], line[f"{prefix}_high"], digits)

    def contrast(self, experiment, key, label, protocol="converged", preset="paper"):
        """Return a contrast of a claim as text."""
        line = self.line("contrasts", experiment=experiment, preset=preset, protocol=protocol, key=key, contrast=label)
        return self.gain(line, "difference")

    def winner(self, *, most_hops=2):
        """Return the line of the activation of the family that validates best in the setting of Table 1, F = 8."""
        setting = {"experiment": "source-localization", "preset": "paper", "protocol": "converged", "kind": "model"}
        lines = self.lines("cells", features=8, order=4, **setting)
        family = [line for line in lines if line["hops"] and line["hops"] <= most_hops]
        return min(family, key=lambda one: (-one["validation"], one["rounds"], one["parameters"], one["method"]))

    def best_pointwise(self, line):
        """Return the line of the rival of a network."""
        same = ("experiment", "preset", "protocol", "features", "order", "condition")
        return self.line("cells", method=line["rival"], **{key: line[key] for key in same})

    @staticmethod
    def name(line, key="method"):
        """Return how a line's network is called."""
        return Variant(line[key], line.get("hops")).label

    def table_1(self):
        """Return Table 1 beside the paper's."""
        return self._beside("table-1", {2: "F = 2", 4: "F = 4", 8: "F = 8"}, 1)

    def table_2(self):
        """Return Table 2 beside the paper's, with the baselines."""
        body = self._beside("table-2", FILMS, 3)
        for method, words in (("mean of the training ratings", "a constant"), (RIDGE, "ridge regression")):
            cells = [self.cell("recommendation", method, condition=f"film {film}") for film in FILMS]
            body.append([words, *(text for line in cells for text in (f"{line['mean']:.3f} ± {line['sd']:.3f}", ""))])
        return body

    def _beside(self, table, columns, digits):
        heads = [""]
        for words in columns.values():
            heads += [words, "paper"]
        body = [heads]
        for method in dict.fromkeys(line["method"] for line in self.tables[table]):
            lines = self.lines(table, protocol="converged", method=method)
            texts = [self.name(lines[0])]
            for line in lines:
                mark = " ✓" if line["inside"] else " ▲" if line["mean"] > line["paper_mean"] else " ▼"
                texts.append(f"{line['mean']:.{digits}f} ± {line['sd']:.{digits}f}{mark}")
                texts.append(f"{line['paper_mean']:.{digits}f} ± {line['paper_sd']:.{digits}f}")
            body.append(texts)
        return body

    def inside(self, table, protocol="converged"):
        """Return how many numbers of a table of the paper ours lie beside within its standard deviation."""
        lines = self.lines(table, protocol=protocol)
        return f"{sum(line['inside'] for line in lines)} of {len(lines)}"

    def claims(self, *experiments):
        """Return a line for each claim of the paper: words, verdicts, and the contrast that stands most in its way."""
        body = [["claim", "`converged`", "text's training", "weakest contrast, 95 % interval", "p (Holm)", "line"]]
        for number, line in enumerate(self.tables["claims"], 2):  # the first has the heads
            if line["family"] != "claims" or line["protocol"] not in ("converged", "source-localization"):
                continue
            if experiments and line["experiment"] not in experiments:
                continue
            where = {"experiment": line["experiment"], "key": line["key"], "preset": line["preset"]}
            literal = self.lines("claims", protocol=LITERAL.get(line["experiment"], "paper"), **where)
            shown = line if line["contrasts"] else literal[0]
            digits = DIGITS[line["experiment"]] if line["preset"] == "paper" else 1
            low, high = shown["difference_low"], shown["difference_high"]
            words = f"{shown['weakest']}: {shown['difference']:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
            verdicts = [counted(line), counted(literal[0]) if literal else ""]
            p = p_text(shown["p_holm"])
            place = line["where"].partition(", ")[2] or line["where"]
            body.append([f"{place}: {line['claim']}", *verdicts, words.replace("|", r"\|"), p, str(number)])
        return body

    def claims_of(self, *experiments):
        """Return the claims of some experiments without their place in the table of all."""
        return [texts[:-1] for texts in self.claims(*experiments)]

    def counts(self, *, is_literal=False):
        """Return how many claims of the four experiments have each verdict."""
        words = [
            line["verdict"]
            for line in self.lines("claims", family="claims", preset="paper")
            if line["where"] != "here"
            and line["protocol"] == (LITERAL.get(line["experiment"], "paper") if is_literal else "converged")
        ]
        return ", ".join(f"{words.count(word)} {word}" for word in VERDICTS if word in words)

    def counts_table(self):
        """Return how many claims have each verdict under both protocols, as a table."""
        told = {"`converged`": self.counts(), "text's training": self.counts(is_literal=True)}
        found = {
            name: {word: number for number, word in (part.split(" ", 1) for part in text.split(", "))}
            for name, text in told.items()
        }
        heads = [word for word in VERDICTS if any(word in own for own in found.values())]
        return [["claims", *heads], *([name, *(own.get(word, "0") for word in heads)] for name, own in found.items())]

    def verdict(self, experiment, key, protocol="converged", preset="paper"):
        """Return the verdict on a claim."""
        return self.line("claims", experiment=experiment, key=key, protocol=protocol, preset=preset)["verdict"]

    def settings(self, sign=None, experiment="node-classification"):
        """Return the settings of a benchmark, or those with a significant gain or loss."""
        lines = self.lines("node-classification", experiment=experiment)
        if sign is None:
            return lines
        return [line for line in lines if line["p_holm"] < ALPHA and line["gain"] * sign > 0]

    def pairs(self, sign=None, experiment="node-classification"):
        """Return the pairs of an activation and a setting that were tested, or the significant gains or losses."""
        tested = [line for line in self.lines("node-scores", experiment=experiment) if line["p_holm"] is not None]
        if sign is None:
            return tested
        return [line for line in tested if line["p_holm"] < ALPHA and line["gain"] * sign > 0]

    @staticmethod
    def on_one_split(lines):
        """Return whether runs of all these settings differ in their seeds alone, on the public split."""
        return all(line["protocol"] in ("public", "kipf") for line in lines)

    def controls_gain_as_much(self):
        """Return whether a ReLU after further shifts gains more wherever an activation gains significantly."""
        return all(
            max(self.score(line["protocol"], line["level"], "relu-hops", 1, line["width"])["gain"], 0) > line["gain"]
            for line in self.pairs(1)
        )

    def step_sizes_at_edge(self):
        """Return whether nine in ten networks at equal rounds take the largest step size that was tried."""
        rates = [line["rate"] for line in self.tables["rounds"]]
        return rates.count(max(rates)) >= 0.9 * len(rates)

    def score(self, protocol, level, method, hops=None, width=None):
        """Return the line of an activation in a setting of a benchmark."""
        where = {"protocol": protocol, "level": level, "method": method, "hops": hops}
        return self.line("node-scores", **where, **({"width": width} if width else {}))

    def where_lost(self):
        """Return the settings of node classification with a significant loss, as a table."""
        body = [["setting", "best pointwise", "best neighbourhood activation", "difference"]]
        for line in self.settings(-1):
            where = f"`{line['protocol']}`, F = {line['width']}, {title_of(line['level'])}"
            sides = [f"{line[kind]}: {line[f'{kind}_mean']:.1f}" for kind in ("pointwise", "ours")]
            body.append([where, *sides, self.gain(line)])
        return body

    def equivalences(self, protocol):
        """Return how many activations are shown to be equivalent to the best pointwise one on Cora, of how many."""
        lines = self.lines("equivalence", protocol=protocol)
        return f"{sum(line['equivalent'] for line in lines)} of {len(lines)}"

    @property
    def gcn_cora(self):
        """The equivalence test of the activation that stands for its kind, GCN on Cora."""
        return self.line("equivalence", protocol="gcn", stands_for_kind=True)

    @staticmethod
    def interval_90(line):
        """Return the interval on which an equivalence test rests."""
        return f"{line['difference']:+.1f} [{line['low_90']:+.1f}, {line['high_90']:+.1f}]"

    def best_in_consensus(self):
        """Return the network with the lowest error in consensus, with the inputs as they come."""
        return min(
            self.lines("cells", experiment="consensus", preset="paper", kind="model"), key=lambda one: one["mean"]
        )

    def largest_loss(self):
        """Return the largest significant loss of node classification."""
        return -min(line["gain"] for line in self.settings(-1))

    def smallest_loss(self):
        """Return the smallest significant loss of node classification as text."""
        return f"{-max(line['gain'] for line in self.settings(-1)):.1f}"

    def parameters_at_six(self, kind):
        """Return the parameters of a network of six rounds."""
        return f"{self.line('rounds', split='unseen', rounds=6, kind=kind)['parameters']:,}"

    def prepared_with_losses(self, method, hops=None):
        """Return a line of consensus with prepared inputs and 15 % of the links lost."""
        condition = "loss_probability 0.15"
        return self.cell("consensus", method, "best", preset="best", condition=condition, hops=hops)

    def not_within_margin(self):
        """Return the numbers of Table 1 whose difference from the paper's is certainly beyond the margin."""
        where = {"experiment": "source-localization", "preset": "paper", "protocol": "converged", "key": "table-1"}
        lines = self.lines("contrasts", **where)
        return [
            line["contrast"]
            for line in lines
            if line["difference_low"] > line["margin"] or line["difference_high"] < -line["margin"]
        ]

    def graph_power(self):
        """Return the smallest gain that graph classification could have shown."""
        return min(line["could_show"] for line in self.settings(experiment="graph-classification"))

    def best_of(self, experiment):
        """Return the line of Max G.A. with prepared inputs (preset `best`)."""
        condition = "snr_db 3.0" if experiment == "denoising" else None
        return self.cell(experiment, "max-ga", "best", preset="best", condition=condition)

    def rounds_drawn(self):
        """Return the splits of quality against rounds that have a figure: those with two numbers of rounds or more."""
        found = {}
        for line in self.tables["rounds"]:
            found.setdefault(line["split"], set()).add(line["rounds"])
        return [split for split, numbers in sorted(found.items()) if len(numbers) > 1]

    def best_at_rounds(self, split):
        """Return the network with a gain that validates best, at each number of rounds with the most networks.

        Linear controls are not among them.
        """
        controls = POINTWISE_KINDS | LINEAR_KINDS
        lines = [line for line in self.lines("rounds", split=split) if line["kind"] not in controls]
        lines = [line for line in lines if line["gain"] is not None]
        most = max(line["networks"] for line in lines)
        lines = sorted((line for line in lines if line["networks"] == most), key=lambda line: line["validation"])
        best = {line["rounds"]: line for line in lines}
        return [best[number] for number in sorted(best)]

    def gains_at_rounds(self, split):
        """Return whether the network that validates best gains significantly (Holm), whatever the rounds."""
        return all(line["gain_p_holm"] < ALPHA and line["gain"] > 0 for line in self.best_at_rounds(split))

    def best_of_rounds(self, split):
        """Return the network of these that validates best of all numbers of rounds."""
        return max(self.best_at_rounds(split), key=lambda line: line["validation"])

    def rounds_gains(self, split):
        """Return these gains with their network, rival and rounds."""
        return ", ".join(
            f"{KINDS[line['kind']]} {self.gain(line)} over {KINDS[line['rival']]} at {line['rounds']} rounds"
            for line in self.best_at_rounds(split)
        )

    def rounds_winners(self):
        """Return the networks with these gains, as a table."""
        body = [["split", "rounds", "validates best", "accuracy", "gain", "over", "networks", "p (Holm)"]]
        for split in ("unseen", "random"):
            for line in self.best_at_rounds(split):
                texts = [split, str(line["rounds"]), KINDS[line["kind"]], self.mean(line), self.gain(line)]
                body.append([*texts, KINDS[line["rival"]], str(line["networks"]), p_text(line["gain_p_holm"])])
        return body

    def best_by_test(self, split):
        """Return the network that tests best on a split at equal rounds, with the most networks; it chooses nothing."""
        lines = self.lines("rounds", split=split)
        most = max(line["networks"] for line in lines)
        return max((line for line in lines if line["networks"] == most), key=lambda line: line["mean"])

    def seeing_all(self, method, split):
        """Return the line of a baseline that sees all nodes, on a split of quality at equal rounds."""
        return self.line("unseen", split=f"{split} at equal rounds", method=method)

    def beaten_by_all_nodes(self):
        """Return whether a nearest neighbour that sees all nodes beats every network on unseen sources."""
        most = max(line["mean"] for line in self.lines("rounds", split="unseen"))
        return self.seeing_all("nearest-neighbor-noisy", "unseen")["mean"] > most

    def rounds_evidence(self):
        """Return on how many networks these gains rest, and the largest p of them."""
        lines = [line for split in ("random", "unseen") for line in self.best_at_rounds(split)]
        counts = " to ".join(map(str, sorted({line["networks"] for line in lines})))
        return f"{counts} networks each, p {p_text(max(line['gain_p_holm'] for line in lines), '= ')}"

    def rounds_rivals(self):
        """Return the pointwise networks that were run at equal rounds."""
        kinds = {line["kind"] for line in self.tables["rounds"]}
        return " and ".join(words for kind, words in POINTWISE_KINDS.items() if kind in kinds)

    def paper_unseen(self, method="max-ga", hops=2):
        """Return the line of an activation in the paper's two layers on unseen sources."""
        return self.line("unseen", split="unseen", method=method, hops=hops, features=8)

    def shifts(self, bank, sign=None, split=None):
        """Return the lines of a bank beside the network with its functions and no shift; or those that differ.

        The sign is that of a significant difference (Holm).
        """
        lines = [line for line in self.lines("rounds", kind=bank) if line["shift"] is not None]
        lines = [line for line in lines if split in (None, line["split"])]
        if sign is None:
            return lines
        return [line for line in lines if line["shift_p_holm"] < ALPHA and sign * line["shift"] > 0]

    def lacking(self):
        """Return what was not run though it could change a conclusion, as words."""
        kinds = {(line["split"], line["rounds"], line["kind"]) for line in self.tables["rounds"]}
        tasks = {(line["experiment"], line["kind"]) for line in self.tables["rounds-tasks"]}
        missing = {
            "at equal rounds: GATv2": not any(kind == "gatv2" for *_, kind in kinds),
            "SiLU, LeakyReLU and tanh": ("unseen", 4, "silu") not in kinds,
            "banks at 9 rounds on a random split": ("random", 9, "bank-max") not in kinds,
            "consensus": ("consensus", "bank-max") not in tasks,
        }
        return ", ".join(words for words, is_missing in missing.items() if is_missing)

    def gains_nothing(self, kind, rounds):
        """Return whether a network gains nothing significant at a number of rounds, on any split."""
        lines = self.lines("rounds", kind=kind, rounds=rounds)
        return not any(line["gain_p_holm"] < ALPHA and line["gain"] > 0 for line in lines)

    def four_functions_lead(self):
        """Return whether the bank of four functions has the highest accuracy of all banks wherever it was run."""
        banks = [line for line in self.tables["rounds"] if line["kind"].startswith("bank-")]
        own = [line for line in banks if line["kind"] == "bank-pna"]
        places = [(line["split"], line["rounds"], line["mean"]) for line in own]
        return all(m >= one["mean"] for s, n, m in places for one in banks if (one["split"], one["rounds"]) == (s, n))

    def maximum_matters(self):
        """Return whether a bank with a maximum is significantly better than with a mean, wherever both were run."""
        lines = [line for line in self.tables["rounds"] if line["control"] is not None]
        return bool(lines) and all(line["control"] > 0 and line["control_p_holm"] < ALPHA for line in lines)

    def shift_table(self, *, with_tasks=False):
        """Return each bank minus the network with its functions and no shift, or minus its linear control."""
        body = [["bank", "minus", "split", "rounds", "networks", "difference", "p (Holm)"]]
        errors = self.tables["rounds-tasks"] if with_tasks else []
        for prefix in ("shift", "control"):
            for line in (line for line in [*self.tables["rounds"], *errors] if line.get(prefix) is not None):
                texts = [KINDS[line["kind"]], KINDS[line[f"{prefix}_minus"]], line["split"]]
                digits = 1
                if "experiment" in line:
                    texts[2], digits = f"{line['experiment']}, RMSE", 3
                texts += [str(line["rounds"]), str(line[f"{prefix}_networks"]), self.gain(line, prefix, digits)]
                body.append([*texts, p_text(line[f"{prefix}_p_holm"])])
        return body

    def linear_methods_win(self):
        """Return whether linear methods have lower errors than every network with the inputs as they come."""
        rivals = (
            ("consensus", "least-squares filter of order 5 with Metropolis weights", None),
            ("denoising", "Wiener filter of each neighbourhood", "snr_db 3.0"),
            ("recommendation", RIDGE, "film toy-story"),
            ("recommendation", RIDGE, "film return-of-the-jedi"),
        )
        for experiment, method, condition in rivals:
            where = {"experiment": experiment, "preset": "paper", "condition": condition}
            networks = [line["mean"] for line in self.lines("cells", kind="model", **where)]
            networks += [line["mean"] for line in self.tables["rounds-tasks"] if line["experiment"] == experiment]
            linear = self.cell(experiment, method, condition=condition)["mean"]
            if min(networks) <= linear:
                return False
        return True

    def no_network_beats_a_constant(self):
        """Return whether no network is significantly better than a constant on any film (Holm)."""
        where = {"experiment": "recommendation", "preset": "paper", "protocol": "converged", "key": "beats-constant"}
        return min(holm([line["p"] for line in self.lines("contrasts", **where)])) >= ALPHA

    def unseen_table(self):
        """Return accuracies on a random split and on unseen sources, of inputs compared with neighbours."""
        methods = {
            "preset `best`, relu": "ReLU",
            "preset `best`, max-ga": "Max G.A.",
            "centralised 1-NN, local contrast": "nearest neighbour, all nodes",
        }
        body = [["", "random split", "unseen sources", "gain on unseen sources"]]
        for method, words in methods.items():
            lines = [
                self.line("unseen", experiment="source-localization", split=split, method=method)
                for split in ("random", "unseen")
            ]
            gain = f"{self.gain(lines[1])} over {methods[lines[1]['rival']]}" if lines[1]["rival"] else ""
            body.append([words, *(f"{line['mean']:.1f}" for line in lines), gain])
        return body

    def all_nodes_table(self):
        """Return the best network at equal rounds and baselines that see all nodes, on the same splits."""
        best = [self.best_by_test(split) for split in ("random", "unseen")]
        names = [f"{self.mean(line)} ({KINDS[line['kind']]}, {line['rounds']} rounds)" for line in best]
        body = [["", "random split", "unseen sources"], ["best network at equal rounds, by test", *names]]
        words = {
            "nearest-neighbor": "nearest neighbour by angle, all nodes",
            "nearest-neighbor-noisy": "the same, with 0.1 % noise on every value",
            "least-squares": "least squares, all nodes",
            "least-squares-unit": "the same, signals divided by their norms",
        }
        for method, text in words.items():
            body.append([text, *(self.mean(self.seeing_all(method, split)) for split in ("random", "unseen"))])
        return body

    def node_banks_table(self):
        """Return adaptive banks in node classification beside the convolution that they replace."""
        body = [["setting", "bank", "bank, ReLU", "GCN, ReLU", "difference", "minus the best pointwise"]]
        for line in self.tables["node-banks"]:
            where = f"`{line['protocol']}`, F = {line['width']}, {title_of(line['level'])}"
            texts = [where, KINDS[line["bank"]].removeprefix("adaptive bank ").strip("()"), self.mean(line)]
            texts += [f"{line['relu_mean']:.1f}", self.gain(line, "minus_relu"), f"{self.gain(line)} ({line['rival']})"]
            body.append(texts)
        return body

    def banks_lose(self, *levels):
        """Return whether banks lose on these graphs, by intervals below zero, and nowhere else gain."""
        lines = self.tables["node-banks"]
        return all(line["gain_high"] < 0 for line in lines if line["level"] in levels) and not any(
            line["gain_low"] > 0 for line in lines
        )

    def banks_range(self, *levels):
        """Return the smallest and the largest loss of a bank against the best pointwise activation, rounded."""
        losses = [-line["gain"] for line in self.tables["node-banks"] if line["level"] in (levels or CITATIONS)]
        return f"{min(losses):.0f} to {max(losses):.0f}"

    def best_prepared_consensus(self):
        """Return the network with the lowest error in consensus with prepared inputs (preset `best`)."""
        where = {"experiment": "consensus", "preset": "best", "kind": "model", "condition": None}
        return min(self.lines("cells", **where), key=lambda one: one["mean"])

    def tasks_at_rounds(self):
        """Return the further experiments that were run at equal rounds, as words."""
        return " and ".join(dict.fromkeys(line["experiment"] for line in self.tables["rounds-tasks"]))

    def unseen_methods(self):
        """Return the methods of Table 1 with F = 8 on a random split and on unseen sources; the best there first."""
        body = [["", "random split", "unseen sources", "gain on unseen sources"]]
        lines = [line for line in self.lines("unseen", split="unseen") if line.get("features") == 8]
        for line in sorted(lines, key=lambda one: -one["mean"]):
            place = {"method": line["method"], "hops": line["hops"], "features": 8}
            random = [f"{one['mean']:.1f}" for one in self.lines("unseen", split="random", **place)]
            gain = f"{self.gain(line)} over {self.name({'method': line['rival']})}" if line["rival"] else ""
            body.append([self.name(line), *(random or [""]), f"{line['mean']:.1f}", gain])
        return body if lines else []

    def rounds_table(self, table="rounds", group="split", digits=1):
        """Return quality against rounds: a line for each kind, a column for each number of rounds and split or task.

        The head of a column has how many networks most of its cells have; other cells have their own number.
        """
        cells = self.tables[table]
        columns = {}
        for line in cells:
            columns.setdefault((line[group], line["rounds"]), []).append(line["networks"])
        columns = {column: mode(numbers) for column, numbers in sorted(columns.items())}
        heads = [f"{split}, {number} rounds, {networks} networks" for (split, number), networks in columns.items()]
        body = [["", *heads]]
        for kind, words in KINDS.items():
            texts = []
            for (split, number), networks in columns.items():
                own = self.lines(table, rounds=number, kind=kind, **{group: split})
                notes = [self.gain(line, digits=digits) for line in own if line.get("rival")]
                notes += [f"{line['networks']} networks" for line in own if line["networks"] != networks]
                notes = f" ({'; '.join(notes)})" if notes else ""
                texts.append(f"{own[0]['mean']:.{digits}f}{notes}" if own else "")
            body += [[words, *texts]] if any(texts) else []
        return body

    def no_bank_gains(self, task):
        """Return whether no adaptive bank but linear controls gains significantly at equal rounds (Holm)."""
        lines = self.lines("rounds-tasks", experiment=task)
        banks = [line for line in lines if "bank" in line["kind"] and line["kind"] not in LINEAR_KINDS]
        return bool(banks) and not any(line["gain"] < 0 and line["gain_p_holm"] < ALPHA for line in banks)

    def rounds_costs(self):
        """Return quality against rounds with what each network costs."""
        body = [["rounds", "split", "", "networks", "parameters", "bytes", "step sizes", "accuracy", "gain"]]
        for line in sorted(self.tables["rounds"], key=lambda one: (one["rounds"], one["split"])):
            texts = [str(line["rounds"]), line["split"], KINDS[line["kind"]], str(line["networks"])]
            texts += [
                f"{line['parameters']:,}",
                str(4 * line["values_on_a_link"]),
                "2",
                f"{line['mean']:.1f} ± {line['margin']:.1f}",
            ]
            body.append([*texts, self.gain(line) if line.get("gain") is not None else ""])
        return body

    def average(self, lines, key="mean"):
        """Return the mean of a column."""
        return fmean(line[key] for line in lines)

    def names(self):
        """Return what templates know."""
        own = {word: getattr(self, word) for word in dir(self) if not word.startswith("_") and word != "names"}
        return own | {
            "markdown": markdown,
            "films": FILMS,
            "kinds": KINDS,
            "title_of": title_of,
            "abs": abs,
            "len": len,
        }


RIDGE = "ridge regression on the user's centred ratings"


def p_text(p, equals=""):
    """Return a p-value as text."""
    return "< 0.001" if p < 0.001 else f"{equals}{p:.3f}"


def counted(line):
    """Return a verdict with how many contrasts hold."""
    if line is None or not line["contrasts"]:
        return ""
    number = f" ({line['holding']} of {line['contrasts']})" if line["contrasts"] > 1 else ""
    return f"**{line['verdict']}**{number}"


def markdown(body):
    """Return a table with its heads in the first line as Markdown."""
    heads, *lines = [[text.replace("|x|", r"\|x\|") for text in line] for line in body]
    rule = "|---" * len(heads) + "|"
    return "\n".join([f"| {' | '.join(heads)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])
