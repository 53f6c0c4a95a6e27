"""Corpus in, checkpoints out. Runs from a checkout: `torchrun --nproc-per-node N -m train`."""
