"""Compare two scored outputs of one VCF.

- `scored_files`: read outputs of `carbon variants`, join their alleles, and group them.
- `compare`: correlations with intervals, differences, the summary and the table.
- `figure`: the scatter plot.

This package does not import torch.
"""

from carbon.compare.compare import CompareJob, run_compare_job
from carbon.compare.scored_files import ScoredFile, read_scored_file

__all__ = ["CompareJob", "ScoredFile", "read_scored_file", "run_compare_job"]
