"""Two scored outputs of one VCF side by side: where they agree, and where they do not.

- `scored_files`: reads what `carbon variants` writes, a function a format.
- `joined`: which allele of one file is which of the other.
- `agreement`: correlations with their intervals, and the differences.
- `groups`: kinds of alleles, lengths of indels, consequences.
- `job`: the files in, the summary, the table and the picture out; `told`, `picture`: how they look.

Nothing here needs a model, so nothing here imports torch.
"""

from carbon.compare.compare import CompareJob, run_compare_job
from carbon.compare.scored_files import ScoredFile, read_scored_file

__all__ = ["CompareJob", "ScoredFile", "read_scored_file", "run_compare_job"]
