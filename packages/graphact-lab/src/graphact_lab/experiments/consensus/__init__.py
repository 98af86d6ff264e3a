"""Consensus: nodes agree on a mean, also while links are lost. The paper's Figures 2a and 2b."""
