"""Where the steps of a build run."""
