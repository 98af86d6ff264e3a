"""The sections of the report: which grids, tables, figures and sentences each experiment has."""
