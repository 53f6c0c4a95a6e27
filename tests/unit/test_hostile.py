"""The campaign of attacks in `bench/` takes any folder of files."""

import argparse
import gzip
import importlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VCF = gzip.compress(b"##fileformat=VCFv4.2\n" + bytes(range(256)) * 9)
FILES = {
    "empty.vcf": b"",
    "utf_16.gff3": "1\tx\tgene\t1\t9\n".encode("utf-16"),
    "cut.vcf.gz": VCF[:-20],
    "torn.vcf.gz": VCF[:10] + b"\xff\xff" + VCF[12:],
    "no.gtf.gz": b"\x1f\x8b",
    "picture.png": b"\x89PNG",
}


def test_every_file_is_an_attack_however_broken_it_is(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    hostile = importlib.import_module("hostile")
    for folder in ("given", "model", "scratch"):
        (tmp_path / folder).mkdir()
    for name, content in FILES.items():
        (tmp_path / "given" / name).write_bytes(content)
    asked = argparse.Namespace(folder=tmp_path / "given", mutations=6, most_bytes=10**6, seed=0)
    attacks = list(hostile._attacks(asked, tmp_path / "model", tmp_path / "scratch"))
    attacked = {Path(each.file).name for each in attacks}
    assert attacked >= FILES.keys() - {"picture.png"} and "picture.png" not in attacked
    assert {each.damage for each in attacks if each.file.endswith("torn.vcf.gz")} > {"whole"}
