"""The network, its pieces, and its parallel forms."""
