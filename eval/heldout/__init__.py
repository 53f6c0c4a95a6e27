"""Measures on what a corpus held out from training: the report of the quickstart."""
