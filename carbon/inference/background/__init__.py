"""What random variants score: the quantiles that make a delta a percentile.

- `kinds`: which variants are compared with one another.
- `draw`: random variants of every kind.
- `quantiles`: the file, and the percentile of a delta.
- `tolerance`: how far bfloat16 moves a percentile.
- `identity`: which model and which settings a background is of.
- `job`: all of it, as `carbon background` does it.
"""

from carbon.inference.background.draw import Drawing
from carbon.inference.background.job import (
    BackgroundJob,
    BackgroundScorer,
    make_background,
    run_background_job,
)
from carbon.inference.background.quantiles import FILE_NAME, Background

__all__ = [
    "FILE_NAME",
    "Background",
    "BackgroundJob",
    "BackgroundScorer",
    "Drawing",
    "make_background",
    "run_background_job",
]
