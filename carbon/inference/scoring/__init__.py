"""Likelihoods of sequences."""
