"""Files and buckets: configuration in TOML."""
