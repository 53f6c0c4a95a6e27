"""What workers of one run do to the pseudo-gradients that go between them."""
