"""Link scheduling: which links of a wireless network send in a slot, decided by each after a few messages."""
