"""What a record is, and how a shard of them lies on disk."""
