"""Deduplication as independent tasks; docs/deduplication.md explains the rule and its cost.

equal        tasks of digests: equal records
join         tasks of bands: links between records with similar sketches
components   one task: the connected components of all links
verify       tasks of components: alignments decide which records go
"""

from functools import partial
from pathlib import Path

from data_pipeline.dedup.components import VERIFY_TASKS, find_components
from data_pipeline.dedup.equal import EQUAL_TASKS, find_equal
from data_pipeline.dedup.join import join_bands
from data_pipeline.dedup.sketch import NUM_BANDS
from data_pipeline.dedup.verify import verify
from data_pipeline.executors import Step


def dedup_steps(work: Path, identity: float) -> list[Step]:
    """Return the steps between the index of all rows and the writing of the remaining rows.

    With an identity of 1 only equal records are removed.
    """
    equal = Step("equal", partial(find_equal, work), EQUAL_TASKS)
    if identity == 1:
        return [equal]
    return [
        equal,
        Step("join", partial(join_bands, work, identity), NUM_BANDS),
        Step("components", partial(find_components, work), 1),
        Step("verify", partial(verify, work, identity), VERIFY_TASKS),
    ]
