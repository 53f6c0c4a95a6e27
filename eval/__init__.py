"""Checkpoint in, numbers and pictures out. Runs from a checkout: `python -m eval`."""
