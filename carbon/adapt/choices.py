"""What can be chosen where labels are learned: a table each, in plain Python.

The code behind a choice is looked up where it is used, so that `--help` and a configuration need
neither torch nor scikit-learn.
"""

from typing import NamedTuple


class Format(NamedTuple):
    """A form that data come in.

    Attributes:
        says: in a few words.
        endings: of files that are taken for it unless one is named.
        windows: sequences are those of a reference, so that each has a contig.
    """

    says: str
    endings: tuple[str, ...] = ()
    windows: bool = False


FORMATS: dict[str, Format] = {
    "csv": Format("a table with commas", (".csv", ".csv.gz")),
    "tsv": Format("a table with tabs", (".tsv", ".tsv.gz", ".txt", ".txt.gz", ".tab")),
    "parquet": Format("a Parquet file", (".parquet",)),
    "datasets": Format("a folder of datasets, or an id of the Hugging Face hub"),
    "fasta": Format("a FASTA, and a table beside it (data.table) or labels in its names",
                    (".fa", ".fasta", ".fna", ".fa.gz", ".fasta.gz", ".fna.gz")),
    "bed": Format("places and labels, and a reference", (".bed", ".bed.gz"), windows=True),
    "vcf": Format("variants of a VCF or BCF with labels in INFO, and a reference",
                  (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf"), windows=True),
}  # fmt: skip

SPLITS: dict[str, str] = {
    "files": "data.files names a file for each part",
    "column": "a column says the part",
    "contig": "whole contigs",
    "group": "all of a group in one part, by a hash of its name",
    "random": "each by a hash of its name",
}

LEAKS: dict[str, str] = {
    "tell": "count what stands in two parts, and say so",
    "refuse": "end",
    "drop": "leave it out of what is learned from, test before validation before train",
}

CLASS_WEIGHTS: dict[str, str] = {
    "none": "every example counts alike",
    "balanced": "every class counts alike: rows / (classes x rows of the class)",
}

TOO_LONG: dict[str, str] = {
    "refuse": "end, and name the record",
    "cut": "read the first bases that fit",
    "tile": "read windows that fit, and take the mean",
}


WAYS: dict[str, str] = {
    "probe": "a linear answer from frozen states",
    "lora": "low-rank adapters (peft)",
    "full": "all weights",
}

BASELINES: dict[str, str] = {
    "constant": "the largest class, or the mean",
    "composition": "length, GC and unknown bases: what needs no sequence",
    "kmers": "counts of 1- to 6-mers, both strands summed",
    "cnn": "a small convolutional network",
}
