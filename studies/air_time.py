"""Numbers of docs/scheduling.md, from the rows of link scheduling."""

from functools import cached_property
from pathlib import Path
from statistics import fmean

from evidence import NotRunError
from graphact_lab.experiments.scheduling.experiment import FULL, PARAMETERS, WIDTH
from graphact_lab.experiments.scheduling.report import (
    LABELS,
    RULE,
    TITLES,
    best_jobs,
    crossed,
    gap_of,
    gaps_under,
    ratios,
    rule_at,
    schedulers,
    show,
    tried_in_time,
    worth,
)
from graphact_lab.statistics import ALPHA, choose
from graphact_lab.store import Store

ROWS = Path(__file__).parent.parent / "results" / "scheduling" / "full"
SHORT = {LABELS["bank"]: "adaptive bank", LABELS["topology"]: "GCN"}
LOSSES = (0.05, 0.2)


class AirTime:
    """Learned keys beside the classical rule at equal rounds, under losses, and in time."""

    def __init__(self, folder=ROWS):
        self.rows = Store(folder).rows()
        self.jobs = best_jobs(self.rows, WIDTH)
        self.budgets = sorted({rounds for _, rounds in self.jobs})
        self.cached = {}

    def gaps(self, kind, loss=None, setting=WIDTH):
        """Return the difference from the rule and its p (Holm) by method and rounds; under losses, of one iteration."""
        place = kind, loss, setting
        if place not in self.cached:
            condition = {"graphs": kind} | ({"loss": loss} if loss else {})
            self.cached[place] = gaps_under(self.rows, setting, condition)
        return self.cached[place]

    def gap(self, method, rounds, kind="random", loss=None):
        """Return points of load beyond the rule as text."""
        return show(*self.gaps(kind, loss)[method, rounds])

    def within(self, method, other, points):
        """Return whether two methods are never further apart than some points of load."""
        return all(
            100 * abs(gap.mean) <= points for kind in TITLES for gap in self.beyond(method, other, kind).values()
        )

    def missing(self, setting=WIDTH):
        """Return the networks of a setting that were not run, as words."""
        run = {(row["method"], row["layers"], row["iterations"]) for row in choose(self.rows, setting=setting)}
        jobs = [job for job in FULL.jobs if job.setting == setting]
        lacking = [job for job in jobs if (job.method, job.layers, job.iterations) not in run]
        return ", ".join(f"{LABELS[job.method]} with L = {job.layers} and I = {job.iterations}" for job in lacking)

    def with_second_iteration(self, method, rounds, loss):
        """Return points of load under losses of keys whose split validation without losses has chosen, as text."""
        own = self.jobs[method, rounds]
        if own[0]["iterations"] == 1:
            raise NotRunError(f"validation chose one iteration for {method} at {rounds} rounds")
        return show(gap_of(self.rows, own, {"graphs": "random", "loss": loss}, rounds), 1.0)

    def sure_of(self, sign, rounds, kind="random", loss=None):
        """Return the methods that gain or lose significantly at a number of rounds."""
        found = self.gaps(kind, loss)
        return [name for (name, n), (gap, p) in found.items() if n == rounds and p < ALPHA and gap.mean * sign > 0]

    def gaining(self, rounds):
        """Return the kinds of graphs on which a method gains significantly at a number of rounds."""
        return [kind for kind in TITLES if self.sure_of(1, rounds, kind)]

    def gain_everywhere(self, method, rounds):
        """Return whether a method gains significantly on every kind of graphs."""
        return all(method in self.sure_of(1, rounds, kind) for kind in TITLES)

    def all_gain(self, loss):
        """Return whether every method gains significantly under losses at every number of rounds."""
        return all(p < ALPHA and gap.mean > 0 for gap, p in self.gaps("random", loss).values())

    def gain_range(self, rounds):
        """Return the smallest and the largest points of load beyond the rule of all methods and kinds of graphs."""
        values = [100 * gap.mean for kind in TITLES for (_, n), (gap, _) in self.gaps(kind).items() if n == rounds]
        return f"{min(values):.0f} to {max(values):.0f}"

    def beyond(self, method, other, kind="random"):
        """Return the points of load of a method beyond another one at each number of rounds that both have."""
        condition, found = {"graphs": kind}, {}
        for rounds in self.budgets:
            if (method, rounds) in self.jobs and (other, rounds) in self.jobs:
                pairs = (ratios(self.jobs[name, rounds], condition) for name in (method, other))
                gaps = [[one - two for one, two in zip(*each, strict=True)] for each in zip(*pairs, strict=True)]
                found[rounds] = crossed(gaps)
        return found

    def range_beyond(self, method, other):
        """Return the smallest and the largest of these points on all kinds of graphs."""
        values = [100 * gap.mean for kind in TITLES for gap in self.beyond(method, other, kind).values()]
        return f"{min(values):+.1f} to {max(values):+.1f}"

    def never_ahead(self, method, other):
        """Return whether no interval of these points lies above 0."""
        return all(gap.interval()[0] <= 0 for kind in TITLES for gap in self.beyond(method, other, kind).values())

    def falls_behind_rule(self, method, rounds, loss):
        """Return whether a method loses significantly under losses at a number of rounds."""
        return method in self.sure_of(-1, rounds, loss=loss)

    def leads(self, method, budgets, loss):
        """Return whether a method has the highest mean of all under losses at each of these numbers of rounds."""
        means = {place: gap.mean for place, (gap, _) in self.gaps("random", loss).items()}
        return all(
            means[method, rounds] == max(mean for (_, n), mean in means.items() if n == rounds) for rounds in budgets
        )

    def rule_table(self):
        """Return the load of the rule under losses, with each message sent once and with repeats."""
        body = [["messages lost", "rule", *map(rounds_in_words, self.budgets)]]
        for loss in LOSSES:
            condition = {"graphs": "random", "loss": loss}
            once = choose(self.rows, kind="baseline", method=RULE, condition=condition)
            loads = [max(row["value"] for row in once if row["rounds"] <= rounds) for rounds in self.budgets]
            repeated = [fmean(rule_at(self.rows, condition, rounds)) for rounds in self.budgets]
            for words, values in (("each message once", loads), ("repeated", repeated)):
                body.append([f"{100 * loss:g} %", words, *(f"{value:.3f}" for value in values)])
        return body

    def loss_table(self):
        """Return the points of load of keys with one iteration beyond the rule that repeats."""
        body = [["messages lost", "keys", *map(rounds_in_words, self.budgets)]]
        for loss in LOSSES:
            found = self.gaps("random", loss)
            for method in dict.fromkeys(name for name, _ in found):
                texts = (show(*found[method, n]) if (method, n) in found else "" for n in self.budgets)
                body.append([f"{100 * loss:g} %", SHORT.get(LABELS[method], LABELS[method]), *texts])
        return body

    @cached_property
    def in_time(self):
        """The outcomes in time of each scheduler at its own best number of rounds, by contention."""
        found = schedulers(self.rows)
        return {SHORT.get(label, label): own for label, own in found.items() if "no messages" not in label}

    def stable(self, label, contention):
        """Return the largest stable load of a scheduler."""
        return worth(self.in_time[label][contention])[0]

    def stable_table(self):
        """Return the largest stable load, and what is carried in overload."""
        body, in_overload = [["c", *self.in_time]], schedulers(self.rows, in_overload=True)
        overloads = {SHORT.get(label, label): own for label, own in in_overload.items()}
        for contention in sorted(next(iter(self.in_time.values()))):
            carried = {label: worth(overloads[label][contention])[1] for label in self.in_time}
            texts = (f"{self.stable(label, contention):.2f} ({carried[label]:.3f})" for label in self.in_time)
            body.append([str(contention), *texts])
        return body

    def no_key_is_more_stable(self):
        """Return whether no learned key keeps a larger load stable than both rules, whatever the contention."""
        rules = [label for label in self.in_time if label.startswith("rule")]
        return all(
            max(self.stable(rule, contention) for rule in rules) >= self.stable(label, contention)
            for label, own in self.in_time.items()
            for contention in own
        )

    def tried(self):
        """Return from how many pairs of rounds and layers each scheduler in time is the best one, as words."""
        counts = tried_in_time(self.rows)
        return ", ".join(f"{SHORT.get(label, label)} {count}" for label, count in counts.items() if count > 1)

    def setting(self, name):
        """Return one of the settings of the rows at equal rounds."""
        return self.rows[0]["settings"][name]

    def equal_parameters(self):
        """Return the numbers of rounds at which networks with as many parameters as the bank were run, as words."""
        rounds = sorted({row["rounds"] for row in choose(self.rows, kind="model", setting=PARAMETERS)})
        return ", ".join(map(str, rounds))

    def parameters_change(self):
        """Return the largest change of load that as many parameters as the bank's make on random graphs, in points."""
        gaps, usual = self.gaps("random", setting=PARAMETERS), self.gaps("random")
        return f"{max(100 * abs(gap.mean - usual[place][0].mean) for place, (gap, _) in gaps.items()):.1f}"


def rounds_in_words(rounds):
    return f"{rounds} round{'s'[: rounds > 1]}"
