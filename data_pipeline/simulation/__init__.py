"""A genome with a known truth, and variants of known effect from any."""
