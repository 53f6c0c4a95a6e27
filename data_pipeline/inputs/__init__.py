"""Inputs of a corpus: assemblies, finished sequences and reads, and places on them."""
