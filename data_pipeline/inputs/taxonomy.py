r"""NCBI's taxonomy, from the files of its taxdump: lineages with names and ranks.

`nodes.dmp`, `names.dmp` and `merged.dmp` are columns between `\t|\t`
(https://ftp.ncbi.nlm.nih.gov/pub/taxonomy/taxdump_readme.txt).
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray
from pyarrow import csv

from carbon.errors import UserError

_ROOT = 1
_MOST_STEPS = 1000
_SCIENTIFIC = "scientific name"


class Taxon(NamedTuple):
    """A node of the taxonomy."""

    taxid: int
    name: str
    rank: str


class Taxonomy:
    """A taxdump, read once."""

    def __init__(self, folder: str | Path) -> None:
        """Read the three files of a folder.

        Raises:
            UserError: one is absent or not of the format.
        """
        self._folder = Path(folder)
        nodes = _columns(self._folder / "nodes.dmp", {0: pa.int64(), 1: pa.int64(), 2: pa.string()})
        self._order = np.argsort(nodes[0].to_numpy(), kind="stable")
        self._taxids: NDArray[np.int64] = nodes[0].to_numpy()[self._order]
        self._parents: NDArray[np.int64] = nodes[1].to_numpy()[self._order]
        self._ranks = nodes[2]
        self._named = _columns(
            self._folder / "names.dmp", {0: pa.int64(), 1: pa.string(), 3: pa.string()}
        )
        scientific = pa.compute.equal(self._named[2], _SCIENTIFIC)
        taxids = self._named[0].filter(scientific).to_numpy()
        by_taxid = np.argsort(taxids, kind="stable")
        self._scientific_taxids = taxids[by_taxid]
        self._scientific_names = self._named[1].filter(scientific).take(by_taxid)
        merged = _columns(self._folder / "merged.dmp", {0: pa.int64(), 1: pa.int64()})
        self._merged = dict(zip(*(each.to_pylist() for each in merged), strict=True))

    def taxid_of(self, name: str) -> int:
        """Return the taxon of a scientific name, or else of any other name that one alone has.

        Raises:
            UserError: there is none, or several.
        """
        mine = pa.compute.equal(self._named[1], name)
        taxids, kinds = (self._named[i].filter(mine).to_pylist() for i in (0, 2))
        scientific = {t for t, kind in zip(taxids, kinds, strict=True) if kind == _SCIENTIFIC}
        found = scientific or set(taxids)
        if len(found) != 1:
            many = f"is the name of {len(found)} taxa" if found else "is not there"
            raise UserError(
                f"{self._folder}/names.dmp: '{name}' {many}; give the taxid of the assembly"
            )
        return int(found.pop())

    def lineage(self, taxid: int) -> tuple[Taxon, ...]:
        """Return the taxa from below the root to one, which may be one that was merged.

        Raises:
            UserError: the taxon does not exist, or the path to the root does not end.
        """
        result: list[Taxon] = []
        taxid = self._merged.get(taxid, taxid)
        while taxid != _ROOT and len(result) < _MOST_STEPS:
            at = int(np.searchsorted(self._taxids, taxid))
            if at == len(self._taxids) or self._taxids[at] != taxid:
                raise UserError(f"{self._folder}/nodes.dmp: has no taxid {taxid}; is it older?")
            rank = self._ranks[int(self._order[at])].as_py()
            result.append(Taxon(taxid, self._name(taxid), rank))
            taxid = int(self._parents[at])
        if len(result) == _MOST_STEPS:
            raise UserError(f"{self._folder}/nodes.dmp: taxid {taxid} has no way to the root")
        return tuple(result[::-1])

    def _name(self, taxid: int) -> str:
        at = int(np.searchsorted(self._scientific_taxids, taxid))
        if at == len(self._scientific_taxids) or self._scientific_taxids[at] != taxid:
            raise UserError(f"{self._folder}/names.dmp: has no scientific name of {taxid}")
        return str(self._scientific_names[at].as_py())


@functools.lru_cache(maxsize=1)
def opened_taxonomy(folder: str) -> Taxonomy:
    """Return a taxdump that stays in memory: the next assembly of the process wants it too."""
    return Taxonomy(folder)


def files_of(folder: str) -> list[str]:
    """Return the files of a taxdump."""
    return [f"{folder}/{name}" for name in ("nodes.dmp", "names.dmp", "merged.dmp")]


def _columns(path: Path, wanted: dict[int, pa.DataType]) -> list[pa.Array]:
    """Return columns of a dump by their place; between two tabs stands a bar, a column to Arrow."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; unpack NCBI's taxdump.tar.gz there")
    types = {f"f{2 * place}": kind for place, kind in wanted.items()}
    if not path.stat().st_size:
        return [pa.array([], type=kind) for kind in types.values()]
    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(autogenerate_column_names=True),
            parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=csv.ConvertOptions(
                include_columns=list(types), column_types=types, strings_can_be_null=False
            ),
        )
    except (pa.ArrowException, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: is no file of a taxdump ({reason}); fetch it again") from None
    return [table[name].combine_chunks() for name in types]
