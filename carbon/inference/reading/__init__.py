"""Networks read in batches that fit into memory, and the distribution behind a context."""
