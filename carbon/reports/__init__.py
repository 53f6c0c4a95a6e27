"""Pages, figures and model cards of runs."""
