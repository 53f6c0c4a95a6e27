"""A corpus in numbers and pictures, and one record of it."""
