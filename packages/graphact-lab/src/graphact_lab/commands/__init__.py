"""Commands of graphact-lab."""
