"""A scan as blocks of windows, which several processes share."""

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from carbon.blocks.work import Work
from carbon.genome import Interval, Reference
from carbon.inference.reading import Reader
from carbon.inference.scan.chunks import ScanChunk
from carbon.inference.scan.job import ScanJob
from carbon.inference.scan.method import ScanMethod
from carbon.inference.scan.regions import (
    Window,
    WindowValues,
    chunks_of,
    read_windows,
    window_blocks,
    windows_at_once,
)


class Scanned(NamedTuple):
    """Regions that are scanned.

    Attributes:
        reader: of the model.
        reference: the sequence.
        regions: of it, of a contig each.
        method: how it is scanned.
    """

    reader: Reader
    reference: Reference
    regions: tuple[Interval, ...]
    method: ScanMethod

    def work(self, job: ScanJob, about: dict[str, Any]) -> Work[list[Window]]:
        """Return the scan as blocks of windows.

        Args:
            job: what is asked for.
            about: everything that the blocks follow from.
        """

        def check() -> int:
            job.check_outputs()
            return sum(map(len, self.blocks()))

        return Work(
            what="scanning windows",
            output=job.outputs[0],
            job=about,
            check=check,
            blocks=self.blocks,
            block_records=windows_at_once(self.reader, self.method),
            even=True,
            compute=self._read,
            resume=job.resume,
        )

    def blocks(self) -> Iterator[list[Window]]:
        """Yield the windows in blocks."""
        return window_blocks(self.reader, self.reference, self.regions, self.method)

    def chunks(self, results: Iterator[tuple[list[Window], Any]]) -> Iterator[ScanChunk]:
        """Yield the chunks of the regions, from what came of every block."""
        read = ((block, _unpacked(found)) for block, found in results)
        return chunks_of(read, self.reference, self.regions, self.method)

    def _read(self, block: list[Window]) -> dict[str, Any]:
        found = read_windows(self.reader, self.reference, block, self.method)
        texts = [base64.b64encode(values.tobytes()).decode() for values in found.values]
        return {"values": texts, "tokens_read": found.tokens_read}


def _unpacked(found: dict[str, Any]) -> WindowValues:
    arrays = (np.frombuffer(base64.b64decode(text), np.float32) for text in found["values"])
    return WindowValues([array.reshape(-1, 4) for array in arrays], found["tokens_read"])
