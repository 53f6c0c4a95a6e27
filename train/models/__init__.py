"""Architectures, and the starting checkpoint of a run."""
