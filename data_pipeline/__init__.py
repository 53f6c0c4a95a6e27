"""Genomes and annotation in, corpus out. Runs from a checkout: `carbon corpus`."""
