"""A finished corpus to a store or to the Hub."""
