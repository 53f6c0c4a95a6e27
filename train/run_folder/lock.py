"""The lock of a run folder, which the first process of a run holds for all."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist

from carbon.errors import UserError
from carbon.io.locks import locked_folder
from train.network.ranks import Ranks


@contextmanager
def locked_run(folder: Path, ranks: Ranks) -> Iterator[None]:
    """Hold the lock of a run folder from before its checkpoints are read until the run ends.

    Raises:
        UserError: another run holds it; on all processes.
        OSError: the folder cannot be written; on all processes.
    """
    with ExitStack() as held:
        refusal: list[Any] = [None]
        if ranks.is_first:
            try:
                held.enter_context(locked_folder(folder))
            except (UserError, OSError) as error:
                refusal = [error]
        dist.broadcast_object_list(refusal, group=ranks.quiet_group, group_src=0)
        if refusal[0] is not None:
            raise refusal[0]
        yield
