"""The report of one run or several: HTML, Markdown, and CSV of every picture."""

from eval.report.page import write_report

__all__ = ["write_report"]
