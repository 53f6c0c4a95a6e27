"""What workers of one run do to the outer gradients that go between them."""
