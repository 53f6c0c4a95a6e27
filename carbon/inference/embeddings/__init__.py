"""A vector a sequence."""
