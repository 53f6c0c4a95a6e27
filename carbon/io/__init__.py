"""Files, locks, recipes, tables and buckets."""
