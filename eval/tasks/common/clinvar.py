"""ClinVar, coding and non-coding: REF against ALT as the next base after 24 kbp."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from carbon.errors import UserError
from carbon.genome import Variant, VcfReader, VcfRow
from carbon.genome.consequence_terms import is_coding
from carbon.genome.vcf import info_of
from eval.contract import BuildReport, Reading, Task
from eval.tables import read_table
from eval.tasks.common.building import write_drawn
from eval.tasks.common.references import AnyName
from eval.tasks.common.variants import (
    VARIANT_COLUMNS,
    VariantTask,
    check_share,
    examples_on_reference,
    is_snv,
)

Region = Literal["coding", "noncoding"]

READING = Reading("right_end", 24_000, "forward")
COLUMNS = VARIANT_COLUMNS | {"label": int}
HUB_ID = "HuggingFaceBio/clinvar-vep"

# Six verdicts, whole: what conflicts or adds "risk factor" is neither.
_LABELS = {
    "Pathogenic": 1,
    "Likely_pathogenic": 1,
    "Pathogenic/Likely_pathogenic": 1,
    "Benign": 0,
    "Likely_benign": 0,
    "Benign/Likely_benign": 0,
}
# The review status as ClinVar's stars, by how it begins.
_STARS = {
    "practice_guideline": 4,
    "reviewed_by_expert_panel": 3,
    "criteria_provided,_multiple_submitters": 2,
    "criteria_provided": 1,
}
_LEAST_STARS = 1


def task(region: Region, hub_file: str, published: dict[str, float], measures: str) -> Task:
    """Return the task of one region."""
    return VariantTask(
        name=f"clinvar_{region}",
        measures=measures,
        published=published,
        citation="Carbon technical report, tables 6 and 7",
        columns=COLUMNS,
        hub_id=HUB_ID,
        hub_file=hub_file,
        reads=partial(_read, region=region, hub_file=hub_file),
        build=_builder(region),
        examples=partial(examples_on_reference, reading=READING, group="variant_type"),
    )


def _read(source: Path | str, region: Region, hub_file: str) -> pa.Table:
    """Read a table; where it has both regions, in a column `region`, keep one."""
    table = read_table(source, COLUMNS, hub_file)
    if "region" not in table.column_names:
        return table
    regions = [_bare(text) for text in table["region"].to_pylist()]
    kept = table.filter(pa.array([text == region for text in regions]))
    if not kept.num_rows:
        there = ", ".join(sorted(set(regions)))
        raise UserError(f"{source}: has no row of region '{region}', but of {there}")
    return kept


def _bare(region: Any) -> str:
    return "".join(letter for letter in str(region).lower() if letter.isalpha())


def _builder(region: Region) -> Callable[..., BuildReport]:
    """Return the builder of one region."""

    def build(
        output: Path,
        *,
        vcf: Path,
        reference: Path,
        num_examples: int | None = None,
        seed: int = 0,
    ) -> BuildReport:
        """Write the labelled single-base changes of one region of ClinVar.

        Kept are the verdicts pathogenic, likely pathogenic, benign and likely benign with one star
        at least. A variant is coding if one of its consequences (`MC`) is. Non-coding classes are
        made equal by leaving out of the larger one, as the published set has 7,629 of each.

        Args:
            output: Parquet to write.
            vcf: of ClinVar, in the coordinates of the reference.
            reference: FASTA; contigs may be written `1` or `chr1`.
            num_examples: most rows; all if None.
            seed: of the choice of rows of the larger class.

        Raises:
            GenomeError: the VCF is broken, or its REFs disagree with the reference.
            UserError: nothing is left.
        """
        dropped: Counter[str] = Counter()
        with AnyName(reference) as fasta:
            disagreeing: list[Variant] = []
            rows = list(_labelled(VcfReader(vcf, fasta), region, dropped, disagreeing))
            looked_at = len(rows) + dropped["other_region"] + len(disagreeing)
            check_share(fasta, disagreeing, looked_at)
        if region == "noncoding":
            rows = _balanced(rows, seed, dropped)
        settings = {"task": f"clinvar_{region}", "seed": seed, "least_stars": _LEAST_STARS}
        return write_drawn(output, rows, num_examples, seed, dropped, (vcf, reference), settings)

    return build


def _labelled(
    records: VcfReader, region: Region, dropped: Counter[str], disagreeing: list[Variant]
) -> Iterator[dict[str, Any]]:
    for record in records:
        if reason := _why_not(record):
            dropped[reason] += 1
            disagreeing += record.variants if reason in ("ref_mismatch", "ref_past_end") else ()
            continue
        info = info_of(record.columns[7])
        terms = [part.partition("|")[2] for part in info.get("MC", "").split(",")]
        coding = [term for term in terms if is_coding(term)]
        if bool(coding) != (region == "coding"):
            dropped["other_region"] += 1
            continue
        variant = record.variants[0]
        yield {
            "chrom": variant.contig,
            "pos": variant.position + 1,
            "ref": variant.ref.upper(),
            "alt": variant.alt.upper(),
            "label": _LABELS[info["CLNSIG"]],
            "region": region,
            "variant_type": (coding or terms)[0],
            "clinvar_id": record.columns[2],
        }


def _why_not(record: VcfRow) -> str | None:
    info = info_of(record.columns[7])
    alleles = [(variant.ref.upper(), variant.alt.upper()) for variant in record.variants]
    if len(alleles) != 1 or not is_snv(*alleles[0]):
        return "not_a_single_base_change"
    if info.get("CLNSIG") not in _LABELS:
        return "neither_pathogenic_nor_benign"
    status = info.get("CLNREVSTAT", "")
    stars = next((n for text, n in _STARS.items() if status.startswith(text)), 0)
    if stars < _LEAST_STARS:
        return "no_star"
    if "|" not in info.get("MC", ""):
        return "no_consequence"
    if record.disagreement:
        reason = record.disagreement.reason
        return "contig_not_in_reference" if reason == "contig_unknown" else reason
    return None


def _balanced(
    rows: Sequence[dict[str, Any]], seed: int, dropped: Counter[str]
) -> list[dict[str, Any]]:
    """Leave rows of the larger class out until both are of one size; the order stays."""
    random = np.random.default_rng(seed)
    of_label = [[n for n, row in enumerate(rows) if row["label"] == label] for label in (0, 1)]
    size = min(map(len, of_label))
    kept = {n for numbers in of_label for n in random.permutation(numbers)[:size].tolist()}
    dropped["larger_class"] += len(rows) - len(kept)
    return [row for n, row in enumerate(rows) if n in kept]
