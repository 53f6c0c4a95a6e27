"""The run folder: logs, records, the summary page and the model card."""
