"""`bcftools csq` as a second opinion on what variants do to transcripts.

csq reads Ensembl's GFF3 alone, so annotations are rewritten in that form: line by line, not through
the readers that are tested.
"""

import gzip
import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from carbon.genome import Interval, Reference, Variant

_GTF = re.compile(r'(\w+) "([^"]*)"')


# What GFF3 calls the parts of a transcript in a GTF.
_PARTS = {
    "exon": "exon",
    "CDS": "CDS",
    "stop_codon": "CDS",
    "five_prime_utr": "five_prime_UTR",
    "three_prime_utr": "three_prime_UTR",
}
Terms = frozenset[str]
# Names of csq for terms of the Sequence Ontology.
NAMES = {
    "missense": "missense_variant",
    "synonymous": "synonymous_variant",
    "stop_gained": "stop_gained",
    "stop_lost": "stop_lost",
    "stop_retained": "stop_retained_variant",
    "start_lost": "start_lost",
    "frameshift": "frameshift_variant",
    "inframe_insertion": "inframe_insertion",
    "inframe_deletion": "inframe_deletion",
    "inframe_altering": "protein_altering_variant",
    "splice_acceptor": "splice_acceptor_variant",
    "splice_donor": "splice_donor_variant",
    "splice_region": "splice_region_variant",
    "5_prime_utr": "5_prime_UTR_variant",
    "3_prime_utr": "3_prime_UTR_variant",
    "coding_sequence": "coding_sequence_variant",
    "non_coding": "non_coding_transcript_exon_variant",
    "intron": "intron_variant",
}
SPLICE_REGION = NAMES["splice_region"]


def gff3_of_gtf(gtf: Path, gff3: Path, contigs: set[str]) -> None:
    """Write an Ensembl GTF as Ensembl's GFF3: the stop codon is a part of the CDS."""
    lines = []
    stops: dict[str, list[tuple[int, int]]] = defaultdict(list)
    rows = [row for row in _rows(gtf) if row[0] in contigs]
    for row in rows:
        if row[2] == "stop_codon":
            names = dict(_GTF.findall(row[8]))
            stops[names["transcript_id"]].append((int(row[3]), int(row[4])))
    for contig, source, kind, first, last, _, strand, phase, text in rows:
        names = dict(_GTF.findall(text))
        start, end = int(first), int(last)
        if kind == "gene":
            told = f"ID=gene:{names['gene_id']};biotype={names['gene_biotype']}"
        elif kind == "transcript":
            told = f"ID=transcript:{names['transcript_id']};Parent=gene:{names['gene_id']};"
            told += f"biotype={names['transcript_biotype']}"
            kind = "mRNA"
        elif kind in _PARTS:
            told = f"Parent=transcript:{names['transcript_id']}"
            kind = _PARTS[kind]
        else:
            continue
        lines.append([contig, source, kind, start, end, ".", strand, phase, told])
    merged = _with_stop_codons(lines)
    gff3.write_text("##gff-version 3\n" + "".join("\t".join(map(str, ln)) + "\n" for ln in merged))


def _rows(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt") as lines:
        return [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]


def _with_stop_codons(lines: list[list]) -> list[list]:
    """Join coding lines of a transcript that touch: its CDS and its stop codon."""
    coding: dict[str, list[list]] = defaultdict(list)
    for line in lines:
        if line[2] == "CDS":
            coding[line[8]].append(line)
    gone = set()
    for parts in coding.values():
        parts.sort(key=lambda line: line[3])
        for left, right in pairwise(parts):
            if left[4] + 1 == right[3]:
                right[3] = left[3]
                if left[6] == "+":
                    right[7] = left[7]
                gone.add(id(left))
    return [line for line in lines if id(line) not in gone]


def gff3_of_region(source: Path, gff3: Path, contig: str, offset_bp: int, length_bp: int) -> None:
    """Write the genes of an Ensembl GFF3 that lie in a region, in the coordinates of the region."""
    inside: set[str] = set()
    kept = []
    rows = _rows(source)
    for level in ("gene:", "transcript:", ""):
        for row in rows:
            names = dict(part.split("=", 1) for part in row[8].split(";"))
            start, end = int(row[3]) - offset_bp, int(row[4]) - offset_bp
            name, parents = names.get("ID", ""), names.get("Parent", "").split(",")
            if _level(name) != level:
                continue
            fits = start > 0 and end <= length_bp
            # csq reads the first parent of a line alone.
            for parent in [""] if level == "gene:" and fits else sorted(inside & set(parents)):
                inside.add(name)
                told = row[8].replace(names.get("Parent", "\0"), parent)
                kept.append("\t".join([contig, *row[1:3], str(start), str(end), *row[5:8], told]))
    gff3.write_text("##gff-version 3\n" + "\n".join(kept) + "\n")


def _level(name: str) -> str:
    return next((level for level in ("gene:", "transcript:") if name.startswith(level)), "")


def drawn(
    reference: Reference, places: list[Interval], kind: str, number: int, seed: int
) -> list[Variant]:
    """Draw variants of a kind (snv, insertion, deletion) from places, each once."""
    source = random.Random(f"{kind} {seed}")
    weights = [place.length_bp for place in places]
    found: dict[Variant, None] = {}
    while len(found) < number:
        (place,) = source.choices(places, weights)
        at = source.randrange(place.start, place.end)
        length_bp = source.choice((1, 1, 2, 3, 3, 4, 5, 6, 9, 12))
        end = at + (1 + length_bp if kind == "deletion" else 1)
        if end > reference.contig_lengths_bp[place.contig]:
            continue
        ref = reference.fetch(Interval(place.contig, at, end)).upper()
        alt = ref[0]
        if kind == "snv":
            alt = source.choice(sorted(set("ACGT") - {ref}))
        elif kind == "insertion":
            alt += "".join(source.choices("ACGT", k=length_bp))
        if set(ref) <= set("ACGT"):
            found[Variant(place.contig, at, ref, alt)] = None
    return sorted(found, key=lambda v: (v.contig, v.position, v.ref, v.alt))


def called(
    folder: Path, fasta: Path, gff3: Path, variants: list[Variant], lengths_bp: Mapping[str, int]
) -> Iterator[tuple[Variant, dict[str, Terms]]]:
    """Yield the terms that csq gives each variant, by transcript, or by gene where it names none.

    A gene has the key `gene:NAME`.
    """
    vcf = folder / "in.vcf"
    contigs = "".join(f"##contig=<ID={name},length={n}>\n" for name, n in lengths_bp.items())
    rank = {name: n for n, name in enumerate(lengths_bp)}
    ordered = sorted(variants, key=lambda v: (rank[v.contig], v.position))
    records = "".join(
        f"{v.contig}\t{v.position + 1}\t{n}\t{v.ref}\t{v.alt}\t.\t.\t.\n"
        for n, v in enumerate(ordered)
    )
    columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
    vcf.write_text(f"##fileformat=VCFv4.2\n{contigs}{columns}{records}")
    words = ["bcftools", "csq", "-p", "a", "--local-csq", "-f", str(fasta), "-g", str(gff3)]
    done = subprocess.run([*words, str(vcf)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        if not line.startswith("#"):
            columns = line.split("\t")
            yield ordered[int(columns[2])], _of_transcripts(columns[7])


def _of_transcripts(info: str) -> dict[str, Terms]:
    fields = dict(part.split("=", 1) for part in info.split(";") if "=" in part)
    found: dict[str, Terms] = defaultdict(frozenset)
    for each in fields.get("BCSQ", "").split(","):
        parts = each.split("|")
        if len(parts) > 2:
            terms = (NAMES.get(term, term) for term in parts[0].split("&"))
            found[parts[2] or f"gene:{parts[1]}"] |= set(terms)
    return found
