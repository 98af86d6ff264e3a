"""The commands, one file each: their options, and what they call."""
