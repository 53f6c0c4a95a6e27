"""The model that a run goes on from, and what is trained of it."""
