"""The paper's experiments: protocols, results and reports."""
