"""Reports on results: a page, tables and figures from rows, beside the paper's numbers and honest baselines."""
