"""What a run writes down, and what is read from that again."""
