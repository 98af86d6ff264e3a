"""Node classification: eleven data sets, every activation, settings by nested selection."""
