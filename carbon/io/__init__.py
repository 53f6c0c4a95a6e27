"""Atomic files, locks, recipes, output tables and buckets."""
