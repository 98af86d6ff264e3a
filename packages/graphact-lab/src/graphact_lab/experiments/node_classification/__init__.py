"""Node classification: activations compared on the benchmarks of the field."""
