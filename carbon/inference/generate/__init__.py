"""Sequences drawn: rules, constraints, drafts, gaps."""
