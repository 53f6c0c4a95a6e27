"""Genomes and annotation in, corpus out. Runs from a checkout: `python -m data_pipeline`."""
