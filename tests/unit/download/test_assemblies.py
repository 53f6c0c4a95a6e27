"""The downloader against a small copy of NCBI's layout, served from this machine with faults."""

import gzip
import tomllib
from pathlib import Path

import pytest

from carbon import __version__
from carbon.errors import UserError
from data_pipeline.__main__ import main
from data_pipeline.inputs.ncbi import Accession, download, read_accessions
from tests.helpers.download import (
    ABSENT,
    ANNOTATION,
    E_COLI,
    GENOME,
    GENOME_BYTES,
    REPORT,
    YEAST,
    YEAST_FOLDER,
    files_in,
    get,
    original,
)


def whole_whatever_was_asked(handler, content):
    handler.reply(200, content)


def marked_as_encoded(handler, content):
    handler.reply(200, content, Content_Encoding="gzip")


class TestTheList:
    def read(self, tmp_path, text):
        (tmp_path / "list.tsv").write_text(text)
        return read_accessions(tmp_path / "list.tsv")

    def test_a_good_one(self, tmp_path):
        text = f"# bacteria\n\n{E_COLI}\tpro  # K-12\r\n  {YEAST}  \nGCF_000001405.40\tmam\n"
        assert self.read(tmp_path, text) == [
            Accession(E_COLI, "pro"), Accession(YEAST, None), Accession("GCF_000001405.40", "mam")
        ]  # fmt: skip

    def test_bytes_of_other_systems(self, tmp_path):
        (tmp_path / "windows.txt").write_bytes(f"\ufeff{E_COLI}\r\n".encode())
        assert read_accessions(tmp_path / "windows.txt") == [Accession(E_COLI)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("GCF_00000584.2", "line 2: 'GCF_00000584.2' is not"),
            ("xGCF_000005845.2", "line 2: 'xGCF_000005845.2' is not"),
            (f"{E_COLI} pro", "line 2: .* after a TAB"),
            (f"{E_COLI}\tbacteria", "line 2: unknown species type 'bacteria'"),
            (f"{E_COLI}\tpro\tx", "line 2: 3 columns"),
            (f"{YEAST}", f"line 2: {YEAST} is named twice"),
        ],
    )
    def test_bad_lines(self, tmp_path, text, message):
        with pytest.raises(UserError, match=f"list.tsv {message}"):
            self.read(tmp_path, f"{YEAST}\n{text}\n")


class TestDownload:
    def test_what_comes(self, ncbi, output, capsys):
        """The genome is not one of the two other files whose names end as its name does."""
        _, without = get(ncbi, output, E_COLI, YEAST).assemblies
        assert files_in(output) == sorted([E_COLI, YEAST, "assemblies.toml"])
        assert files_in(output / E_COLI) == sorted([GENOME, ANNOTATION, REPORT, "verified.json"])
        for name in (GENOME, ANNOTATION, REPORT):
            assert (output / E_COLI / name).read_bytes() == original(ncbi, name)
        assert without.annotation is None
        assert f"{YEAST}: NCBI has no annotation" in capsys.readouterr().err

    def test_the_recipe(self, ncbi, output, monkeypatch):
        monkeypatch.chdir(output.parent)
        accessions = [Accession(YEAST, "fng"), Accession(E_COLI)]
        download(accessions, Path(output.name), ncbi.url, seconds_between=0)
        yeast, e_coli = tomllib.loads((output / "assemblies.toml").read_text())["assemblies"]
        assert yeast == {
            "name": "R64",
            "genome": str(output / YEAST / f"{YEAST_FOLDER}_genomic.fna.gz"),
            "organism": "Saccharomyces cerevisiae S288C",
            "accession": YEAST,
            "species_type": "fng",
        }
        assert e_coli["annotation"] == str(output / E_COLI / ANNOTATION)
        assert e_coli["organism"] == "Escherichia coli str. K-12 substr. MG1655"
        assert "species_type" not in e_coli

    def test_politeness(self, ncbi, output, waits):
        """One connection, who we are, and a pause before every request but the first."""
        download([Accession(E_COLI), Accession(YEAST)], output, ncbi.url, seconds_between=50)
        assert len(ncbi.requests) == 11  # a listing, a status, checksums; three and two files
        assert len(waits) == 10 and all(40 < seconds <= 50 for seconds in waits)
        assert len(ncbi.clients) == 1
        assert ncbi.headers == {(f"carbon-dna/{__version__}", "identity")}

    def test_a_file_marked_as_encoded_is_not_unpacked(self, ncbi, output):
        folder = ncbi.add("GCF_000000001.1_A", "# Assembly name: A\n# Organism name: B\n",
                          {"_genomic.fna.gz": gzip.compress(b">c\nACGT\n")})  # fmt: skip
        name = f"{folder.name}_genomic.fna.gz"
        ncbi.faults[name] = [marked_as_encoded]
        (assembly,) = get(ncbi, output, "GCF_000000001.1").assemblies
        assert gzip.decompress(Path(assembly.genome).read_bytes()) == b">c\nACGT\n"


class TestAnotherRun:
    def test_asks_nothing_of_what_is_whole(self, ncbi, output):
        first = get(ncbi, output, E_COLI, YEAST)
        recipe = (output / "assemblies.toml").read_text()
        (output / "assemblies.toml").unlink()
        ncbi.requests.clear()
        assert get(ncbi, output, E_COLI, YEAST) == first
        assert ncbi.requests == []
        assert (output / "assemblies.toml").read_text() == recipe

    @pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"x")])
    def test_fetches_only_what_is_not_whole(self, ncbi, output, damage):
        get(ncbi, output)
        damage(output / E_COLI / ANNOTATION)
        ncbi.requests.clear()
        get(ncbi, output)
        assert ncbi.ranges_of(ANNOTATION) == [None]
        assert ncbi.ranges_of(GENOME) == ncbi.ranges_of(REPORT) == []
        assert (output / E_COLI / ANNOTATION).read_bytes() == original(ncbi, ANNOTATION)

    def begin(self, output, content):
        (output / E_COLI).mkdir(parents=True)
        (output / E_COLI / f"{GENOME}.part").write_bytes(content)

    @pytest.mark.parametrize("length", [1234, GENOME_BYTES])
    def test_goes_on_with_a_part(self, ncbi, output, length):
        """Also with one that is all of it."""
        self.begin(output, original(ncbi, GENOME)[:length])
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == [f"bytes={length}-"]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)
        assert not (output / E_COLI / f"{GENOME}.part").exists()

    def test_starts_over_where_ranges_are_ignored(self, ncbi, output):
        self.begin(output, original(ncbi, GENOME)[:1234])
        ncbi.faults[GENOME] = [whole_whatever_was_asked]
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == ["bytes=1234-"]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    @pytest.mark.parametrize("length", [1234, GENOME_BYTES + 1])
    def test_fetches_anew_where_the_part_is_of_something_else(self, ncbi, output, length):
        self.begin(output, bytes(length))
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == [f"bytes={length}-", None]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)


@pytest.mark.parametrize(("keep_going", "code"), [(True, 1), (False, 2)])
def test_the_command(ncbi, output, tmp_path, capsys, keep_going, code):
    path = tmp_path / "list.txt"
    path.write_text(f"{E_COLI}\n{ABSENT}\n")
    words = [str(path), "--output", str(output), "--server", ncbi.url]
    assert main(["download", *words, *["--keep-going"] * keep_going]) == code
    assert capsys.readouterr().out == (f"{output}/assemblies.toml\n" if keep_going else "")
    assert (output / "assemblies.toml").exists() is keep_going
