"""Every claim of the paper: its words, where the paper makes it, the contrasts that it consists of, and its margin.

It is judged under every protocol that was run (docs/tables/claims.csv, contrasts.csv). A claim of several contrasts
holds if all of them do, so its p is the largest p-value; those of the claims of one experiment under one protocol are
adjusted by Holm.

supported       adjusted p below 0.05; "so far" where contrasts were not run
not after Holm  p below 0.05 before the adjustment, not after
in part         some of its contrasts hold (Holm within the claim), none the other way
mixed           some hold, and some are certain in the other direction
contradicted    none holds, and at least one is certain in the other direction
no difference   none holds, and all are shown to be smaller than the margin
undecided       the data show neither; the smallest difference that they could have shown stands beside
not run         there are no rows
"""

from claims_localization import robustness_claims, source_localization_claims
from claims_regression import consensus_claims, denoising_claims, recommendation_claims

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
