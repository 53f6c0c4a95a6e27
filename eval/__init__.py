"""Checkpoint in, numbers and pictures out. Runs from a checkout: `carbon eval`."""
