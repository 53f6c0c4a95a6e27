"""The version, in one place; CHANGELOG.md opens with the same number."""

__version__ = "0.2.0"
