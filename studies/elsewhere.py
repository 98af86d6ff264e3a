"""Source localization in other settings than that of Table 1: depths, widths, shift operators, block models."""

from statistics import fmean

from evidence import minus
from exchanges import certain
from exhibits import localizing, name
from grid import Grid
from quotes import Quotes

POINTWISE_RUN = ("fir", "relu", "leaky-relu", "prelu")  # in other settings than that of Table 1
# A label, the protocol with what was changed, and the number of features
OTHER_SETTINGS = (
    ("as in Table 1: two layers, F = 8", "converged", 8),
    ("one layer", "converged, layers 1", 8),
    ("three layers", "converged, layers 3", 8),
    ("F = 2", "converged", 2),
    ("F = 4", "converged", 4),
    ("F = 16", "converged", 16),
    ("F = 32", "converged", 32),
    ("Laplacian", "converged, shift laplacian", 8),
    ("Laplacian, translated", "converged, shift translated", 8),
    ("communities of 5", "converged, task_options {'community_size': 5}", 8),
    ("communities of 25", "converged, task_options {'community_size': 25}", 8),
    ("q = 0.02", "converged, task_options {'q': 0.02}", 8),
    ("q = 0.3", "converged, task_options {'q': 0.3}", 8),
    ("weights for each feature", "converged, per_feature True", 8),
)


def settings_of_columns(features):
    """The networks that are compared in other settings, by what a column is called."""
    plain = {name(method): localizing(method, features) for method in POINTWISE_RUN}
    hops = {"max-l": (1, 2), "max-ga": (2,), "median-l": (1, 2), "median-ga": (2,), "kernel-ga": (2,)}
    seeing = {f"{name(m)} ({hop})": localizing(m, features, hop) for m, own in hops.items() for hop in own}
    return plain | seeing


class Elsewhere(Quotes):
    """Return the results of the networks of Table 1 in other settings."""

    def other_settings(self):
        """Source localization at other depths, widths, shift operators and block models, K = 4.

        A line has means and, paired, what is gained over the pointwise activation that validates best among those run,
        if the strongest of Table 1's, PReLU, is among them.
        """
        lines = []
        for label, protocol, features in OTHER_SETTINGS:
            study = self.study("source-localization", protocol)
            run = {where: column for column, where in settings_of_columns(features).items() if self.has(study, where)}
            if not run:
                continue
            means, gains = [self.mean(study, where) for where in settings_of_columns(features).values()], ["", ""]
            if strongest := self._strongest(study, run):
                rivals = (localizing("max-ga", features), localizing("median-l", features, 2))
                gains = [self.gap(study, where, strongest) for where in rivals]
                gains[0] = f"{name(strongest.method)} {gains[0]}"
            lines.append([label, *means, *gains])
        heads = ["", *settings_of_columns(8), "Max G.A. (2) minus the best of the first four", "Median L. (2) minus it"]
        return Grid(heads, lines)

    def leads(self):
        """In each other setting, what the neighbourhood activation that validates best gains over the pointwise one."""
        found = {}
        for label, protocol, features in OTHER_SETTINGS:
            study, own = self.study("source-localization", protocol), settings_of_columns(features).values()
            run = [where for where in own if self.has(study, where)]
            seeing = [one for one in run if one.method not in POINTWISE_RUN]
            if seeing and (strongest := self._strongest(study, run)):
                best = max(seeing, key=lambda where: self._validation(study, where))
                found[label] = self.estimate(study, minus("", best, strongest))
        return found

    def seeing_lead_everywhere(self):
        """Return whether those gains are certain in every setting, adjusted for their number."""
        found = list(self.leads().values())
        return bool(found) and all(certain(found)) and all(one.mean > 0 for one in found)

    def max_ga_leads_not(self):
        """The settings in which Max G.A. (2) has no certain gain over the best pointwise activation."""
        return [line[0] for line in self.other_settings().lines if line[-2] and "**" not in line[-2]]

    def _strongest(self, study, run):
        """The pointwise network that validates best; None where PReLU was not run."""
        pointwise = [where for where in run if where.method in POINTWISE_RUN]
        if "prelu" in {where.method for where in pointwise}:
            return max(pointwise, key=lambda where: self._validation(study, where))
        return None

    def _validation(self, study, where):
        return fmean(row["validation"] for row in self.evidence.rows(study, where))
