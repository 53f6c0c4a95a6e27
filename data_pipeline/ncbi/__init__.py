"""Assemblies by accession."""
