"""The inspect verb: records, what was dropped, and all in numbers; counted again, slowly."""

import csv
import math
import re
import shutil
import statistics
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pysam
import pytest

from carbon.corpus import SCHEMA, read_manifest, read_source
from carbon.errors import ConfigError, CorpusError, GenomeError
from data_pipeline.__main__ import main
from data_pipeline.inspect import inspect_dropped, inspect_record
from data_pipeline.report import BASE_MIXTURE, draw, inspect_summary, write_report
from tests.helpers.files import place_gene, random_bases, write_fasta

SOURCES = ("eukaryote", "eukaryote_concatenated", "mrna", "mrna_splice", "promoter")
SPLITS = ("train", "test")
ORGANISM = "Testus <simulatus>"
COMPLEMENT = dict(zip("ACGTNacgtn", "TGCANtgcan", strict=True))


@pytest.fixture(scope="module")
def contigs(tmp_path_factory):
    """A simulated genome as folder and bases: some masked, some unknown, and a stretch in copies.

    The first 9,000 bases of chr1 stand again as `twin`, and as `kin` with every 150th changed.
    """
    folder = tmp_path_factory.mktemp("sim") / "genome"
    assert main(["simulate", "--output", str(folder), "--genome-bp", "90000", "--seed", "7"]) == 0
    with pysam.FastaFile(str(folder / "genome.fa")) as fasta:
        bases = {name: fasta.fetch(name) for name in fasta.references}
    (folder / "genome.fa.fai").unlink()
    for name, text in bases.items():
        bases[name] = text[:2000] + text[2000:3000].lower() + "N" * 7 + text[3007:]
    bases["twin"] = bases["chr1"][:9000]
    kin = list(bases["twin"])
    kin[::150] = ["A" if base in "Cc" else "C" for base in kin[::150]]
    bases["kin"] = "".join(kin)
    write_fasta(folder / "genome.fa", bases)
    with (folder / "genes.gff3").open("a") as gff3:
        for line in (folder / "genes.gff3").read_text().splitlines():
            if line.startswith("chr1\t") and int(line.split("\t")[4]) < 8700:
                for name in ("twin", "kin"):
                    renamed = re.sub(r"(ID|Parent)=([^;]+)", rf"\1=\2_{name}", line[5:])
                    gff3.write(f"{name}\t{renamed}\n")
    return folder, bases


@pytest.fixture(scope="module")
def corpus(contigs, tmp_path_factory):
    output = tmp_path_factory.mktemp("built") / "corpus"
    build(contigs[0], output)
    return output


def build(genome, output, *overrides):
    settings = [
        f"output={output}",
        f"assemblies.0.genome={genome}/genome.fa",
        f"assemblies.0.annotation={genome}/genes.gff3",
        f"assemblies.0.sources={list(SOURCES)}",
        f"assemblies.0.organism={ORGANISM}",
        "assemblies.0.species_type=fng",
        "assemblies.0.licence=CC0",
        "assemblies.0.name=sim",
        'assemblies.0.holdout=["chr6"]',
        "keep.min_record_bp=1100",
        "cut.upstream_bp=1000",
        "cut.concatenated_bp=9000",
        *overrides,
    ]
    assert main(["build", *(word for item in settings for word in ("--set", item))]) == 0


def rewritten(corpus, folder, source, split, change, row_group_size=1024):
    """Copy a corpus and put the rows of one split through `change`."""
    copy = folder / "copy"
    shutil.copytree(corpus, copy)
    rows = read_source(corpus, source, split).to_pylist()
    change(rows)
    (path,) = (copy / source).glob(f"{split}-*.parquet")
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, path, row_group_size=row_group_size)
    return copy


def positions(row):
    """The place on the contig, 0-based, and the strand of every base of a record."""
    return [
        (place, strand)
        for start, end, strand in (segment.values() for segment in row["segments"])
        for place in (range(start, end) if strand == "+" else reversed(range(start, end)))
    ]


def rows_of(corpus, source):
    return [
        (split, row) for split in SPLITS for row in read_source(corpus, source, split).to_pylist()
    ]


def slow_numbers(rows):
    """Records, bases, tokens, median, longest, GC, N and masked in percent, letter by letter."""
    letters = Counter("".join(row["sequence"] for row in rows))
    lengths = sorted(len(row["sequence"]) for row in rows)
    known = sum(letters[x] for x in "ACGTacgt")
    return [
        len(rows),
        sum(lengths),
        sum(math.ceil(length / 6) for length in lengths),
        statistics.median_low(lengths),
        lengths[-1],
        round(100 * sum(letters[x] for x in "GCgc") / known, 2),
        round(100 * (sum(lengths) - known) / sum(lengths), 2),
        round(100 * sum(n for x, n in letters.items() if x.islower()) / sum(lengths), 2),
    ]


def number(text):
    return float(text.replace(",", ""))


class TestRecord:
    def test_every_record_of_every_source_is_traced_back(self, contigs, corpus, capsys):
        folder, bases = contigs
        strands, most_segments = set(), 0
        for source in SOURCES:
            for split in SPLITS:
                rows = read_source(corpus, source, split).to_pylist()
                assert rows, (source, split)
                for number_, row in enumerate(rows):
                    assert inspect_record(corpus, source, split, number_) == 0
                    out = capsys.readouterr().out
                    assert out.startswith(f"{source} {split}, row {number_}: {row['name']}\n")
                    assert out.endswith(f"every base agrees with {folder}/genome.fa\n")
                    text = bases[row["record_id"]]
                    strands |= {segment["strand"] for segment in row["segments"]}
                    for base, (place, strand) in zip(row["sequence"], positions(row), strict=True):
                        assert base == (text[place] if strand == "+" else COMPLEMENT[text[place]])
                most_segments = max(most_segments, *(len(row["segments"]) for row in rows))
        assert strands == {"+", "-"} and most_segments > 2

    @pytest.mark.parametrize("strand", ["+", "-"])
    @pytest.mark.parametrize("source", ["mrna", "eukaryote_concatenated"])
    def test_one_changed_base_is_found(self, contigs, corpus, tmp_path, capsys, source, strand):
        folder, bases = contigs
        rows = read_source(corpus, source, "train").to_pylist()
        which, row, at = next(
            (i, row, sum(s["end"] - s["start"] for s in row["segments"][:1]) + 17)
            for i, row in enumerate(rows)
            if len(row["segments"]) > 1 and row["segments"][1]["strand"] == strand
        )
        here = next(x for x in "ACGT" if x != row["sequence"][at].upper())

        def change(rows):
            sequence = rows[which]["sequence"]
            rows[which]["sequence"] = sequence[:at] + here + sequence[at + 1 :]

        changed = rewritten(corpus, tmp_path, source, "train", change)
        assert inspect_record(changed, source, "train", which) == 1
        place, _ = positions(row)[at]
        forward = bases[row["record_id"]][place].upper()
        there = forward if strand == "+" else COMPLEMENT[forward]
        assert capsys.readouterr().out.splitlines()[-1] == (
            f"differs from {folder}/genome.fa at {row['record_id']}:{place + 1}, read along strand "
            f"{strand}: {there} there, {here} here (base {at + 1} of the record)"
        )
        assert inspect_record(changed, source, "train", which - 1 if which else 1) == 0

    @pytest.mark.parametrize(("strand", "position"), [("+", 11), ("-", 20)])
    def test_over_the_origin_of_a_circle(self, contigs, corpus, tmp_path, capsys, strand, position):
        """The last 30 bases of chr1 and its first 30; base 40 of the 60 is wrong, from 0."""
        _, bases = contigs
        text = (bases["chr1"][-30:] + bases["chr1"][:30]).upper()
        if strand == "-":
            text = "".join(COMPLEMENT[x] for x in reversed(text))
            position = len(bases["chr1"]) - 30 + position  # base 40 back from the end is base 19
        wrong = next(x for x in "ACGT" if x != text[40])
        length = len(bases["chr1"])
        segment = {"start": length - 30, "end": length + 30, "strand": strand}
        for sequence, code in ((text, 0), (text[:40] + wrong + text[41:], 1)):
            new = {"sequence": sequence, "record_id": "chr1", "segments": [segment]}
            folder = tmp_path / str(code)
            folder.mkdir()
            copy = rewritten(corpus, folder, "mrna", "test", lambda rows, n=new: rows[0].update(n))
            assert inspect_record(copy, "mrna", "test", 0) == code
        assert (
            f"at chr1:{position}, read along strand {strand}: {text[40]} there, {wrong} here"
            in (capsys.readouterr().out)
        )

    def test_what_is_shown(self, contigs, corpus, capsys):
        _, bases = contigs
        rows = read_source(corpus, "mrna", "train").to_pylist()
        which, row = next(
            (i, r) for i, r in enumerate(rows) if len(r["segments"]) > 2 and r["strand"] == "-"
        )
        assert inspect_record(corpus, "mrna", "train", row["name"]) == 0
        lines = [re.split(r"\s{2,}", x.strip()) for x in capsys.readouterr().out.splitlines()]
        sequence = row["sequence"]
        _, _, tokens, _, _, gc, n, masked = slow_numbers([row])
        assert lines[0] == [f"mrna train, row {which}: {row['name']}"]
        assert lines[2:10] == [
            ["assembly", "sim"],
            ["organism", ORGANISM],
            ["gene type", "cds, tag <protein_coding_region>"],
            ["species type", "fng, tag <fungi_species>"],
            ["length", f"{len(sequence):,} bases, {tokens:,} tokens of 6"],
            ["letters", f"GC {gc:.2f} %, N {n:.2f} %, soft-masked {masked:.2f} %"],
            ["first 60", sequence[:60]],
            ["last 60", sequence[-60:]],
        ]
        text, joint = bases[row["record_id"]], 0
        segments = row["segments"]
        assert lines[11][0] == "segment" and len(lines[12:-2]) == len(segments)
        for line, segment, following in zip(
            lines[12:-2], segments, [*segments[1:], None], strict=True
        ):
            start, end = segment["start"], segment["end"]
            joint += end - start
            around = "-"
            if following:  # the last bases of this exon on the contig's other strand, then the next
                before = "".join(COMPLEMENT[x] for x in reversed(text[start : start + 12]))
                after = text[following["end"] - 12 : following["end"]]
                around = f"{before}|{''.join(COMPLEMENT[x] for x in reversed(after))}"
            place = f"{row['record_id']}:{start + 1}-{end}"
            assert line[1:] == [place, "-", f"{end - start:,}", around]
        assert joint == len(sequence)

    def test_by_the_name_of_one_gene_that_it_joins(self, corpus, capsys):
        rows = read_source(corpus, "eukaryote_concatenated", "train").to_pylist()
        which = next(i for i, row in enumerate(rows) if row["record_id"] == "chr2")
        name = rows[which]["name"].split(",")[1]
        assert inspect_record(corpus, "eukaryote_concatenated", "train", name) == 0
        first = f"eukaryote_concatenated train, row {which}: {rows[which]['name']}\n"
        assert capsys.readouterr().out.startswith(first)

    def test_records_that_share_a_name_are_listed(self, corpus, tmp_path, capsys):
        def change(rows):
            rows[3]["name"] = rows[8]["name"] = "twin"
            rows[9]["name"] = "gene7.transcript.of.a.long.name"

        copy = rewritten(corpus, tmp_path, "mrna", "train", change, row_group_size=4)
        assert inspect_record(copy, "mrna", "train", "twin") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "2 records of mrna train are named 'twin'; choose one by its row"
        rows = read_source(copy, "mrna", "train").to_pylist()
        expected = [
            [str(i), "sim", f"{rows[i]['record_id']}:{rows[i]['start'] + 1}-{rows[i]['end']}"]
            for i in (3, 8)
        ]
        assert [line.split() for line in lines[3:]] == expected
        assert inspect_record(copy, "mrna", "train", 8) == 0  # in its third row group
        assert rows[8]["sequence"][:60] in capsys.readouterr().out
        with pytest.raises(CorpusError, match=r"no record 'GENE7'; is it 'gene7\.transcript\.of"):
            inspect_record(copy, "mrna", "train", "GENE7")

    def test_unknown_names_rows_and_sources(self, corpus):
        rows = read_source(corpus, "mrna", "train").to_pylist()
        name = rows[-1]["name"]
        with pytest.raises(CorpusError, match=f"mrna: train has no record .*; is it.*'{name}'"):
            inspect_record(corpus, "mrna", "train", f"{name}x".upper())
        with pytest.raises(CorpusError, match=r"has no record '\?\?'$"):
            inspect_record(corpus, "mrna", "train", "??")
        for row in (len(rows), -1):
            with pytest.raises(
                CorpusError, match=f"no row {row}; it has {len(rows)}, counted from 0"
            ):
                inspect_record(corpus, "mrna", "train", row)
        with pytest.raises(CorpusError, match="the corpus has sources: eukaryote, eukaryote_conc"):
            inspect_record(corpus, "mrnas", "train", 0)

    def test_a_genome_that_is_given_goes_before_the_recipes(
        self, contigs, corpus, tmp_path, capsys
    ):
        _, bases = contigs
        upper = write_fasta(tmp_path / "upper.fa", {k: v.upper() for k, v in bases.items()})
        assert inspect_record(corpus, "mrna", "train", 0, upper) == 0
        assert f"every base agrees with {upper}" in capsys.readouterr().out
        with pytest.raises(GenomeError, match=r"other\.fa: no contig 'chr"):
            other = write_fasta(tmp_path / "other.fa", {"c1": random_bases(90)})
            inspect_record(corpus, "mrna", "train", 0, other)
        with pytest.raises(GenomeError, match=r"absent\.fa: no such file"):
            inspect_record(corpus, "mrna", "train", 0, tmp_path / "absent.fa")

    def test_genbank(self, contigs, corpus, tmp_path, capsys):
        from Bio import SeqIO
        from Bio.Seq import Seq
        from Bio.SeqRecord import SeqRecord

        path = tmp_path / "genome.gb"
        for wrong, code in (("", 0), ("A" * 40, 1)):
            records = [
                SeqRecord(
                    Seq(wrong + text[len(wrong) :]), k, k, annotations={"molecule_type": "DNA"}
                )
                for k, text in contigs[1].items()
            ]
            SeqIO.write(records, path, "genbank")
            first = read_source(corpus, "eukaryote", "train").to_pylist()[0]
            segment = {"start": 0, "end": 60, "strand": "+"}
            new = {"sequence": contigs[1][first["record_id"]][:60], "segments": [segment]}
            folder = tmp_path / str(code)
            folder.mkdir()
            copy = rewritten(
                corpus, folder, "eukaryote", "train", lambda rows, new=new: rows[0].update(new)
            )
            assert inspect_record(copy, "eukaryote", "train", 0, path) == code
            assert ("agrees with", "differs from")[code] + f" {path}" in capsys.readouterr().out

    def test_without_a_genome_nothing_is_claimed(self, contigs, tmp_path, capsys):
        genome = tmp_path / "genome"
        shutil.copytree(contigs[0], genome)
        build(genome, tmp_path / "c")
        shutil.rmtree(genome)
        assert inspect_record(tmp_path / "c", "mrna", "train", 0) == 0
        out = capsys.readouterr().out
        assert (
            f"not compared: {genome}/genome.fa of the recipe is not there; give the genome" in out
        )
        assert "agrees" not in out

    def test_records_of_a_file_have_no_assembly(self, contigs, tmp_path, capsys):
        fasta = write_fasta(tmp_path / "mine.fa", {"one": random_bases(700, 1)})
        words = [f"output={tmp_path / 'c'}", f"files.0.path={fasta}", "files.0.source=mrna"]
        short = write_fasta(tmp_path / "short.fa", {"two": random_bases(30, 2)})
        words += [f"files.1.path={short}", "files.1.source=promoter"]
        assert main(["build", *(w for each in words for w in ("--set", each))]) == 0
        capsys.readouterr()
        assert inspect_record(tmp_path / "c", "mrna", "train", "one") == 0
        out = capsys.readouterr().out
        assert "not compared: the recipe names no assembly of it; give the genome" in out
        assert "species type  -, tag none" in out and "organism      -" in out
        assert inspect_record(tmp_path / "c", "mrna", "train", "one", fasta) == 0
        assert f"every base agrees with {fasta}" in capsys.readouterr().out
        inspect_summary(tmp_path / "c")
        write_report(tmp_path / "c", tmp_path / "r.html", 100)
        # 117 tokens there are (700 / 6), 100 are drawn.
        assert cells(tmp_path / "r.html", "Mixture")[1:] == [
            ["mrna", "100.00", "100", "117", "0.85"]
        ]
        steps = [["mrna", *["1", "700"] * 3], ["promoter", "1", "30", "0", "0", "0", "0"]]
        assert cells(tmp_path / "r.html", "Steps")[1:] == steps

    def test_segments_that_are_not_as_long_as_the_record(self, corpus, tmp_path, capsys):
        def change(rows):
            rows[0]["sequence"] = rows[0]["sequence"][:-1]

        copy = rewritten(corpus, tmp_path, "promoter", "train", change)
        assert inspect_record(copy, "promoter", "train", 0) == 1
        assert "differs: its segments have 1,100 bases, the record 1,099" in capsys.readouterr().out

    def test_files_that_are_torn(self, corpus, tmp_path):
        shutil.copytree(corpus, tmp_path / "c")
        (path,) = (tmp_path / "c" / "mrna").glob("train-*")
        whole = path.read_bytes()
        path.write_bytes(whole[:-100])
        with pytest.raises(CorpusError, match=r"train-00000\.parquet: cannot be read \(.*build it"):
            inspect_record(tmp_path / "c", "mrna", "train", 0)
        path.write_bytes(whole[:4] + b"\xff" * 2000 + whole[2004:])
        with pytest.raises(CorpusError, match=r"train-00000\.parquet: cannot be read \(.*build it"):
            inspect_summary(tmp_path / "c")
        pq.write_table(read_source(corpus, "mrna", "train").drop(["segments"]), path)
        with pytest.raises(CorpusError, match="no column 'segments'"):
            inspect_record(tmp_path / "c", "mrna", "train", 0)


class TestDropped:
    def test_counts(self, corpus, capsys):
        with (corpus / "dropped.tsv").open() as lines:
            rows = list(csv.reader(lines, delimiter="\t"))[1:]
        expected = Counter((source, reason.split(":")[0]) for source, _, reason, *_ in rows)
        assert len(expected) > 2
        inspect_dropped(corpus)
        found = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert found[0] == ["source", "reason", "dropped"]
        assert {(a, b): number(n) for a, b, n in found[1:]} == expected
        assert len(found) == len(expected) + 1
        order = [(source, -number(n)) for source, _, n in found[1:]]
        assert order == sorted(order) and len(set(order)) > len({source for source, _ in order})

    def test_one_name(self, corpus, capsys):
        with (corpus / "dropped.tsv").open() as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        row = next(row for row in rows if row["contig"])
        inspect_dropped(corpus, row["name"])
        found = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert found[0] == ["source", "name", "reason", "assembly", "place"]
        mine = [each for each in rows if each["name"] == row["name"]]
        assert len(found) == len(mine) + 1
        place = f"{row['contig']}:{int(row['start']) + 1}-{row['end']}"
        assert [row["source"], row["name"], row["reason"], "sim", place] in found

    def test_a_name_that_was_not_dropped(self, corpus, capsys):
        kept = read_source(corpus, "mrna", "train")["name"][0].as_py()
        inspect_dropped(corpus, f"{kept}nothing")
        assert f"nothing named '{kept}nothing' was dropped" in capsys.readouterr().out
        with (corpus / "dropped.tsv").open() as lines:
            name = next(csv.DictReader(lines, delimiter="\t"))["name"]
        inspect_dropped(corpus, name[:-1].upper())
        assert f"'{name}'" in capsys.readouterr().out

    @pytest.mark.parametrize("name", [None, "chr1g0001"])
    def test_no_corpus(self, tmp_path, name):
        with pytest.raises(CorpusError, match="is no corpus"):
            inspect_dropped(tmp_path, name)


def expected_summary(corpus):
    return {
        (source, split): slow_numbers(read_source(corpus, source, split).to_pylist())
        for source in SOURCES
        for split in SPLITS
    }


class TestSummary:
    def test_numbers(self, corpus, capsys):
        inspect_summary(corpus)
        sections = capsys.readouterr().out.split("\n\n")
        rows = [line.split() for line in sections[0].splitlines()[1:]]
        assert {(r[0], r[1]): [number(x) for x in r[2:]] for r in rows} == expected_summary(corpus)
        assert any(number(r[-1]) > 0 for r in rows) and any(number(r[-2]) > 0 for r in rows)
        assert sections[1] == f"held out: {read_manifest(corpus)['held_out'][0]}"
        inputs = [re.split(r"\s{2,}", line) for line in sections[3].splitlines()]
        digests = [each["sha256"][:12] for each in read_manifest(corpus)["inputs"][0]["files"]]
        assert inputs[1:] == [
            ["sim", ORGANISM, "-", "CC0", "genome.fa", digests[0]],
            ["sim", ORGANISM, "-", "CC0", "genes.gff3", digests[1]],
        ]

    def test_row_groups_and_files_add_up(self, corpus, tmp_path, capsys):
        inspect_summary(corpus)
        expected = capsys.readouterr().out
        copy = rewritten(corpus, tmp_path, "mrna", "train", lambda rows: None, row_group_size=3)
        (path,) = (copy / "mrna").glob("train-*")
        table = pq.read_table(path)
        pq.write_table(table.slice(0, 5), path, row_group_size=2)
        pq.write_table(table.slice(5), path.with_name("train-00001.parquet"), row_group_size=3)
        inspect_summary(copy)
        assert capsys.readouterr().out == expected
        for folder in (corpus, copy):
            write_report(folder, tmp_path / f"{folder.name}.html", 1000)
        first, second = (tmp_path / f"{f.name}.html" for f in (corpus, copy))
        assert cells(first, "Largest") == cells(second, "Largest")

    def test_a_corpus_that_holds_nothing_out(self, contigs, tmp_path, capsys):
        build(contigs[0], tmp_path / "c", "assemblies.0.holdout=[]")
        capsys.readouterr()
        inspect_summary(tmp_path / "c")
        out = capsys.readouterr().out
        assert "held out: nothing\n" in out
        (line,) = (x for x in out.splitlines() if x.split()[:2] == ["mrna", "test"])
        assert line.split()[2:] == ["0", "0", "0", "0", "0", "0.00", "0.00", "0.00"]
        write_report(tmp_path / "c", tmp_path / "r.html", 1000)

    def test_an_input_that_was_left_out(self, tmp_path, capsys):
        bases, gff3, _ = place_gene()
        write_fasta(tmp_path / "a.fa", {"c1": bases, "c2": random_bases(900)})
        (tmp_path / "a.gff3").write_text(gff3)
        (tmp_path / "b.fa").write_text("no FASTA")
        words = [f"output={tmp_path / 'c'}", "keep_going=true"]
        for i, name in enumerate("ab"):
            words.append(f"assemblies.{i}.genome={tmp_path}/{name}.fa")
            words.append(f"assemblies.{i}.annotation={tmp_path}/a.gff3")
            words.append(f"assemblies.{i}.holdout=[]")
        assert main(["build", *(w for each in words for w in ("--set", each))]) == 0
        capsys.readouterr()
        inspect_summary(tmp_path / "c")
        assert f"left out: {tmp_path}/b.fa line 1" in capsys.readouterr().out
        write_report(tmp_path / "c", tmp_path / "r.html", 1000)
        assert f"Left out: {tmp_path}/b.fa line 1" in (tmp_path / "r.html").read_text()


def section(path, title):
    return re.search(f"<h2>{title}</h2>(.*?)(<h2>|</html>)", path.read_text(), re.DOTALL)[1]


def cells(path, title, table=0):
    """The cells of a table of the page, the header first."""
    text = re.findall("<table>(.*?)</table>", section(path, title))[table]
    rows = re.findall("<tr>(.*?)</tr>", text)
    return [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def bins(path, title):
    """Each source's bars: from, to, to train on, held out."""
    result = {}
    for source, picture in re.findall(
        r"<figcaption>(\w+): .*?</figcaption>(.*?)</figure>", section(path, title)
    ):
        told = re.findall(
            r"<title>([\d,]+)(?: %)? to under ([\d,]+)(?: %)?: ([\d,]+) to train on, ([\d,]+) held",
            picture,
        )
        result[source] = [tuple(int(number(x)) for x in each) for each in told]
    return result


@pytest.fixture(scope="module")
def page(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(corpus, path, 1_000_000)
    return path


class TestReport:
    def test_it_needs_no_other_file_and_names_each_source(self, page):
        text = page.read_text()
        assert "http://" not in text and "https://" not in text
        assert not re.search(r"<script|<link|<img|@import|url\(|src=", text)
        for source in SOURCES:
            assert source in text
        assert "Testus &lt;simulatus&gt;" in text and ORGANISM not in text
        assert "prefers-color-scheme: dark" in text and "name='viewport'" in text

    def test_numbers(self, corpus, page):
        (held_out,) = read_manifest(corpus)["held_out"]
        assert f"<p>Held out: {held_out}. GC is" in section(page, "In short")
        rows = cells(page, "In short")[1:]
        assert {(r[0], r[1]): [number(x) for x in r[2:]] for r in rows} == expected_summary(corpus)

    def test_histograms(self, corpus, page):
        lengths, gc = bins(page, "Lengths"), bins(page, "GC")
        assert tuple(lengths) == tuple(gc) == SOURCES
        for source in SOURCES:
            seen = Counter()
            for split, row in rows_of(corpus, source):
                letters = Counter(row["sequence"].upper())
                share = 100 * (letters["G"] + letters["C"])
                known = sum(letters[x] for x in "ACGT")
                for found, value in ((lengths, len(row["sequence"])), (gc, share / known)):
                    (i,) = (i for i, b in enumerate(found[source]) if b[0] <= value < b[1])
                    seen[found is gc, i, split] += 1
            for is_gc, found in ((False, lengths), (True, gc)):
                for i, (_, _, train, test) in enumerate(found[source]):
                    assert (train, test) == (seen[is_gc, i, "train"], seen[is_gc, i, "test"])
            ticks = re.findall("'>([^<]+)</text>", section(page, "Lengths").split(f"{source}: ")[1])
            assert ticks[1:3] == ["1k", "10k"]
            # The height of a bar is its share of the highest stack's 100.
            picture = section(page, "GC").split(f"{source}: ")[1].split("</svg>")[0]
            heights = [float(x) for x in re.findall(r"<rect[^>]*height='([\d.]+)'", picture)]
            most = max(train + test for *_, train, test in gc[source])
            for bar, *pair in zip(gc[source], heights[::2], heights[1::2], strict=True):
                assert pair == pytest.approx([100 * bar[2] / most, 100 * bar[3] / most], abs=0.06)

    def test_tags_and_organisms(self, corpus, page):
        genes, species, records = Counter(), Counter(), 0
        for source in SOURCES:
            for _, row in rows_of(corpus, source):
                genes[row["gene_type"], source] += 1
                species[row["species_type"], source] += 1
                records += 1
        for table, expected in ((0, genes), (1, species)):
            header, *rows = cells(page, "Tags", table)
            assert header[2:] == list(SOURCES)
            found = {
                (r[0], s): number(n) for r in rows for s, n in zip(SOURCES, r[2:], strict=True)
            }
            assert {key: n for key, n in found.items() if n} == expected
        assert cells(page, "Tags")[1][1] == "&lt;protein_coding_region&gt;"
        expected = [["sim", "Testus &lt;simulatus&gt;", f"{records:,}"]]
        assert cells(page, "Organisms")[1:] == expected

    def test_steps_dropped_and_duplicates(self, corpus, page):
        steps = read_manifest(corpus)["steps"]
        assert steps["cut"] != steps["filtered"]
        for row in cells(page, "Steps")[1:]:
            expected = [
                steps[step][row[0]][what]
                for step in ("cut", "filtered", "written")
                for what in ("records", "bases")
            ]
            assert [number(x) for x in row[1:]] == expected
        with (corpus / "dropped.tsv").open() as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        expected = Counter((row["source"], row["reason"].split(":")[0]) for row in rows)
        found = {(a, b): number(n) for a, b, n in cells(page, "Dropped")[1:]}
        assert found == expected
        labels = re.findall(r"<text y='\d+'>(\w+): (\w+)</text>", section(page, "Dropped"))
        assert set(labels) == set(expected)
        assert [expected[each] for each in labels] == sorted(expected.values(), reverse=True)
        header, *duplicates = cells(page, "Duplicates")
        for source, *counts in duplicates:
            kinds = [name.replace(" ", "_") for name in header[1:]]
            assert [number(n) for n in counts] == [expected[source, kind] for kind in kinds]
        assert sum(number(n) for _, *counts in duplicates for n in counts) > 0
        stayed = Counter(
            (row["source"], row["reason"].partition(":")[2])
            for row in rows
            if "near" in row["reason"]
        )
        assert len(stayed) > 1
        for source, name, n in cells(page, "Duplicates", 1)[1:]:
            assert stayed[source, name] == number(n)

    def test_the_largest_can_be_inspected(self, corpus, page, capsys):
        rows = cells(page, "Largest")[1:]
        for source in SOURCES:
            for split in SPLITS:
                mine = [row for row in rows if row[:2] == [source, split]]
                lengths = [
                    len(r["sequence"]) for r in read_source(corpus, source, split).to_pylist()
                ]
                expected = sorted(lengths, reverse=True)[:5]
                assert [number(row[-1]) for row in mine] == expected
                assert [lengths[int(row[2])] for row in mine] == expected

    def test_the_base_mixture_of_what_there_is(self, corpus, page):
        """Of eukaryote 0.70, mrna 0.16 and mrna_splice 0.04, 0.90 in all; a million tokens."""
        there = {
            source: sum(
                math.ceil(len(row["sequence"]) / 6)
                for row in read_source(corpus, source, "train").to_pylist()
            )
            for source in SOURCES
        }
        expected = [
            ["eukaryote", "77.78", "777,778", f"{there['eukaryote']:,}",
             f"{777_777.8 / there['eukaryote']:,.2f}"],
            ["mrna", "17.78", "177,778", f"{there['mrna']:,}",
             f"{177_777.8 / there['mrna']:,.2f}"],
            ["mrna_splice", "4.44", "44,444", f"{there['mrna_splice']:,}",
             f"{44_444.4 / there['mrna_splice']:,.2f}"],
        ]  # fmt: skip
        assert cells(page, "Mixture")[1:] == expected
        text = section(page, "Mixture")
        assert "the corpus has no prokaryote; scaled to sum to 1" in text
        assert "Nothing is drawn from eukaryote_concatenated, promoter." in text

    def test_weights_that_are_given(self, corpus, tmp_path):
        path = tmp_path / "r.html"
        write_report(corpus, path, 600, {"promoter": 1, "mrna": 2})
        rows = cells(path, "Mixture")[1:]
        assert [row[:3] for row in rows] == [
            ["promoter", "33.33", "200"], ["mrna", "66.67", "400"],
        ]  # fmt: skip
        # Bars: 200 of 400 is half of 340, 400 all of it.
        widths = re.findall(
            r"<rect class='train' y='\d+' width='([\d.]+)'", section(path, "Mixture")
        )
        assert widths[:2] == ["170.0", "340.0"]

    @pytest.mark.parametrize(
        ("budget", "weights", "message"),
        [
            (0, None, "a budget of 0 tokens: give 1 or more"),
            (9, {"mrnas": 1}, "weight of 'mrnas': the corpus has eukaryote, eukaryote_concat"),
            (9, {"mrna": 0}, "weight of 'mrna' = 0: give more than 0"),
        ],
    )
    def test_mixtures_that_cannot_be(self, corpus, tmp_path, budget, weights, message):
        with pytest.raises(ConfigError, match=message):
            write_report(corpus, tmp_path / "r.html", budget, weights)
        assert list(tmp_path.iterdir()) == []


def test_epochs_by_hand():
    """Of 900 tokens, 7 in 9 are 700 and 2 in 9 are 200: 3.5 and 0.5 times what there is."""
    drawn = draw({"eukaryote": 200, "mrna": 400, "promoter": 5}, 900, {"eukaryote": 7, "mrna": 2})
    assert [(d.source, d.tokens_there) for d in drawn] == [("eukaryote", 200), ("mrna", 400)]
    assert [d.share for d in drawn] == pytest.approx([7 / 9, 2 / 9])
    assert [d.tokens for d in drawn] == pytest.approx([700, 200])
    assert [d.epochs for d in drawn] == pytest.approx([3.5, 0.5])


def test_the_base_mixture():
    assert sum(BASE_MIXTURE.values()) == pytest.approx(1)
    assert draw({"promoter": 5}, 900, BASE_MIXTURE) == []
    (only,) = draw({"mrna": 5, "eukaryote": 0}, 10, BASE_MIXTURE)
    assert (only.source, only.share, only.epochs) == ("mrna", 1, 2)
