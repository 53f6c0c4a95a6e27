"""A scan as blocks of windows, which workers read."""

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from carbon.genome import Interval, Reference
from carbon.inference.identity import identity_of
from carbon.inference.scan.chunks import ScanChunk
from carbon.inference.scan.job import ScanJob
from carbon.inference.scan.method import ScanMethod, scan_method_for
from carbon.inference.scan.regions import (
    Window,
    WindowValues,
    chunks_of,
    read_windows,
    windows_at_once,
)
from carbon.options import ScanOptions

if TYPE_CHECKING:
    from carbon.inference.reading.reader import Reader

Packed = dict[str, Any]
"""The values of a block's windows, as JSON holds them."""


class ScanWorker:
    """A worker: windows in, the log-probabilities of their bases out.

    Attributes:
        about: `method`, how regions are scanned; `windows`, how many a block has; `model`, what of
            the model the output holds; and its `identity`.
    """

    def __init__(self, reader: "Reader", job: ScanJob, options: ScanOptions) -> None:
        """Open the reference.

        Args:
            reader: of the model.
            job: what to scan.
            options: how, which of a gene's strand depend on the annotation.

        Raises:
            UserError: an option is not possible.
        """
        self._reader, self._method = reader, scan_method_for(reader, **options)
        self._reference = Reference(job.reference)
        self.about = {
            "method": self._method._asdict(),
            "windows": windows_at_once(reader, self._method),
            "model": {"yarn": reader.yarn, "dtype": reader.dtype},
            "identity": identity_of(reader, job.model),
        }

    def __call__(self, payload: list[Window]) -> Packed:
        """Return the values of each window, and the number of tokens that were read."""
        found = read_windows(self._reader, self._reference, payload, self._method)
        texts = [base64.b64encode(values.tobytes()).decode() for values in found.values]
        return {"values": texts, "tokens_read": found.tokens_read}


def chunks_from(
    results: Iterator[tuple[list[Window], Packed]],
    reference: Reference,
    regions: Sequence[Interval],
    method: ScanMethod,
) -> Iterator[ScanChunk]:
    """Yield the chunks of regions from the results of their blocks; see `chunks_of`."""
    read = ((block, _unpacked(packed)) for block, packed in results)
    return chunks_of(read, reference, regions, method)


def _unpacked(packed: Packed) -> WindowValues:
    arrays = (np.frombuffer(base64.b64decode(text), np.float32) for text in packed["values"])
    return WindowValues([array.reshape(-1, 4) for array in arrays], packed["tokens_read"])
