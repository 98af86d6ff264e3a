"""Every claim of the paper with a verdict, an interval and a p-value, from stored results.

    python studies/claims.py [results]                    a table as Markdown
    python studies/claims.py [results] --contrasts        every contrast of every claim, too
    python studies/claims.py [results] --csv FILE         all of it for other programs

A claim is a record: its words, where the paper makes it, the contrasts that it consists of, and the bound or margin
that decides. It is judged under every protocol that was run. A claim of several contrasts holds if all of them do, so
its p is the largest p-value; those of the claims of one experiment under one protocol are adjusted by Holm.

supported       adjusted p below 0.05; "so far" where contrasts were not run
not after Holm  p below 0.05 before the adjustment, not after
in part         some of its contrasts hold (Holm within the claim), not all
contradicted    none holds, and at least one is certain in the other direction
no difference   none holds, and all are shown to be smaller than the margin
undecided       the data show neither; the smallest difference that they could have shown stands beside
not run         there are no rows
"""

import argparse
import csv
import sys
from pathlib import Path

from claims_localization import robustness_claims, source_localization_claims
from claims_regression import consensus_claims, denoising_claims, recommendation_claims
from evidence import PROBLEMS, RESULTS, Evidence
from graphact_lab.statistics import bootstrap_interval
from verdicts import judge, shown_interval, shown_p, units_of

# Differences that would not matter, named before the runs of the second round: a seventh of the 14 points that the
# paper claims; one hundredth of the error of answering zero, and of the noise; about the spread of networks in Table 2
MARGINS = {"source-localization": 2.0, "consensus": 0.001, "denoising": 0.02, "recommendation": 0.02}
# Figures of tables are met within half of those 14 points, and within a tenth of a star
OF_TABLES = {"source-localization": 7.0, "recommendation": 0.1}
CLAIMS = [
    *source_localization_claims(MARGINS["source-localization"], OF_TABLES["source-localization"]),
    *consensus_claims(MARGINS["consensus"]),
    *denoising_claims(MARGINS["denoising"]),
    *recommendation_claims(MARGINS["recommendation"], OF_TABLES["recommendation"]),
    *robustness_claims(MARGINS["source-localization"]),
]


def table(verdicts):
    """The verdicts as Markdown."""
    heads = ("claim", "protocol", "verdict", "weakest contrast", "difference, 95 % interval", "p (Holm)")
    yield f"| {' | '.join((*heads, 'd', 'could show', 'units'))} |"
    yield "|---" * 9 + "|"
    for verdict in verdicts:
        claim, study = verdict.claim, verdict.study
        head = f"| {claim.text} | {study.protocol} | **{verdict.word}**"
        if not verdict.estimates:
            yield f"{head} | | | | | | |"
            continue
        contrast, estimate = verdict.weakest
        digits = study.measure.digits
        count = f" ({verdict.count})" if len(verdict.estimates) > 1 else ""
        effect = f"{estimate.effect:+.1f}" if estimate.effect == estimate.effect else ""
        lacking = f", {len(verdict.missing)} not run" if verdict.missing else ""
        label = contrast.label.replace("|", r"\|")
        cells = (label, shown_interval(estimate, digits), shown_p(verdict.adjusted), effect)
        cells += (f"{estimate.detectable():.{digits}f}", units_of(study, estimate))
        yield f"{head}{count}{lacking} | {' | '.join(cells)} |"


def contrast_lines(verdicts):
    """One line for each contrast, for CSV."""
    yield (
        *("experiment", "preset", "protocol", "family", "claim", "contrast", "says", "bound", "margin", "mean", "low"),
        *("high", "bootstrap_low", "bootstrap_high", "p", "p_equivalent", "effect", "detectable", "units", "verdict"),
        "p_of_claim_adjusted",
    )
    for verdict in verdicts:
        claim = verdict.claim
        head = (*verdict.study, claim.family, claim.key)
        for contrast, estimate in verdict.estimates.items():
            drawn = verdict.study.measure.overlap is None and len(getattr(estimate, "values", ())) > 2
            resampled = bootstrap_interval(estimate.values) if drawn else ("", "")
            yield (
                *head,
                *(contrast.label, claim.says, claim.bound, claim.margin, estimate.mean, *estimate.interval()),
                *(*resampled, claim.p(estimate), estimate.p_within(claim.margin), estimate.effect),
                *(estimate.detectable(), estimate.units, verdict.word, verdict.adjusted),
            )
        for contrast, _ in verdict.missing:
            yield (*head, contrast.label, claim.says, claim.bound, claim.margin, *[""] * 10, "not run", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--contrasts", action="store_true", help="every contrast below its claim")
    parser.add_argument("--csv", type=Path, help="write every contrast here")
    options = parser.parse_args()
    try:
        verdicts = judge(Evidence(options.directory), CLAIMS)
    except PROBLEMS as problem:
        sys.exit(str(problem))
    sys.stdout.writelines(f"{line}\n" for line in table(verdicts))
    if options.contrasts:
        for verdict in verdicts:
            sys.stdout.write(f"\n{verdict.claim.text} ({verdict.study.protocol}): {verdict.word}\n")
            for contrast, estimate in verdict.estimates.items():
                words = shown_interval(estimate, verdict.study.measure.digits)
                sys.stdout.write(f"  {contrast.label}: {words}, p {shown_p(verdict.claim.p(estimate))}\n")
    if options.csv:
        with options.csv.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(contrast_lines(verdicts))


if __name__ == "__main__":
    main()
