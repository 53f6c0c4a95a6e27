"""Plans of a run: mesh, memory, time, data."""
