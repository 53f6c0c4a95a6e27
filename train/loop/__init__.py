"""The steps of a run, and what is watched while they are taken."""
