"""Rows of a result in a temporary Parquet file: iterable, and convertible to pandas and Arrow."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_SHOWN_ROWS = 10


class Table:
    """Rows of a result, such as of `Model.score_vcf`; memory does not grow with their number.

    The rows are in a temporary Parquet file without a name, which goes away with this object. A
    row is a dictionary from column to value, None for a missing value. Libraries that read Arrow
    take the table directly: `polars.DataFrame(table)`.

    Attributes:
        summary: counts and settings, as the command prints them; empty for `carbon score`.
    """

    def __init__(self, path: Path, summary: Mapping[str, Any] | None = None) -> None:
        """Open a Parquet file; it may be removed or replaced afterwards.

        Args:
            path: Parquet file with the settings in its metadata, as Carbon writes it.
            summary: see above.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._rows = pq.ParquetFile(pa.memory_map(str(path)))
        self.summary = dict(summary or {})

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that the values depend on."""
        settings: dict[str, Any] = json.loads(self._rows.schema_arrow.metadata[b"carbon"])
        return settings

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._rows.schema_arrow.names)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._rows.metadata.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dictionary; several passes may run at once."""
        for batch in self._rows.iter_batches():
            yield from batch.to_pylist()

    def to_arrow(self) -> "pa.Table":
        """Return the rows as a `pyarrow.Table`."""
        return self._rows.read()

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a `pandas.DataFrame`."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows for the Arrow PyCapsule interface, as polars and DuckDB read it."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """Return the number of rows and the columns."""
        return f"<{len(self)} rows: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """Return the first rows for a notebook."""
        first: Any = next(self._rows.iter_batches(_SHOWN_ROWS), None)
        frame = first.to_pandas() if first is not None else self.to_pandas()
        return f"{frame._repr_html_()}<p>{len(self):,} rows</p>"
