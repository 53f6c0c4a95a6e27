"""Likelihoods of alleles compared: a score a variant, a scored file a VCF."""
