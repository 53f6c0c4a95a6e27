"""Generate DNA: sampling, constraints, speculative decoding, infilling."""
