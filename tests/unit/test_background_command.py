"""`carbon background`, and the percentiles that `carbon variants` writes with its file."""

import json
import shutil
from collections import Counter
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import carbon
from carbon.cli import main
from carbon.genome import Variant
from carbon.inference.options import BackgroundOptions
from carbon.inference.variants.background import (
    Background,
    RandomVariant,
    background_of,
    draw_variants,
)
from carbon.model import save_model
from tests.helpers.files import place_gene, write_fasta, write_vcf

BASES, GFF3, _ = place_gene()
WINDOW = ["--window", "24"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("backgrounds")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c1": BASES})
    (folder / "g.gff3").write_text(GFF3)
    write_vcf(
        folder / "in.vcf",
        [
            f"c1\t115\t.\t{BASES[114]}\tT,A,<DEL>\t.\t.\t.",
            f"c1\t122\t.\t{BASES[121:123]}\t{BASES[121]}\t.\t.\t.",
            f"c1\t300\t.\t{BASES[299]}\t{'A' if BASES[299] != 'A' else 'C'}\t.\t.\t.",
        ],
    )
    assert make(folder, folder / "b.json") == 0
    return folder


def make(folder, output, *more):
    return main(
        ["background", "--model", str(folder / "model"), "--reference", str(folder / "r.fa"),
         "--output", str(output), "--variants-per-kind", "2", *WINDOW, *more]
    )  # fmt: skip


def score(folder, output, *more, window=WINDOW):
    return main(
        ["variants", "--model", str(folder / "model"), "--reference", str(folder / "r.fa"),
         "--vcf", str(folder / "in.vcf"), "--output", str(output), *window, *more]
    )  # fmt: skip


def percentiles(path):
    return [row.get("percentile") for row in pq.read_table(path).to_pylist()]


def settings(path):
    """Return the settings that an output states, in the way of its format."""
    if path.suffix == ".parquet":
        return json.loads(pq.read_schema(path).metadata[b"carbon"])
    (line,) = [x for x in path.read_text().splitlines() if x.startswith("#") and "window_bp" in x
               and "INFO" not in x]  # fmt: skip
    return json.loads(line[line.index("{") :])


def test_percentiles_beside_the_scores(folder, tmp_path, capsys):
    given = ["--background", str(folder / "b.json")]
    assert score(folder, tmp_path / "out.parquet", *given) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["background"], summary["percentiles_of"]) == ("b.json", {"snv": 3})
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names[-2:] == ["percentile", "percentile_of"]
    made = Background.read(folder / "b.json")
    rows = table.to_pylist()
    with carbon.Reference(folder / "r.fa") as reference:
        for row in rows:
            variant = carbon.Variant(row["contig"], row["position"] - 1, row["ref"], row["alt"])
            expected = made.percentile(reference, variant, row["delta"])
            assert row["percentile"] == expected
            assert row["percentile_of"] == (None if expected is None else "snv")
    # Of SNVs there are enough in all, of deletions too few; an allele without a score has none.
    assert [row["percentile"] is None for row in rows] == [False, False, True, True, False]


def test_a_dry_run_counts_what_the_network_reads(
    folder, tmp_path, capsys, monkeypatch, read_tokens
):
    monkeypatch.setattr("carbon.inference.variants.plan._LEAST_SECONDS", 0)
    assert make(folder, tmp_path / "b.json", "--dry-run") == 0
    plan = json.loads(capsys.readouterr().out)
    assert not list(tmp_path.iterdir())
    read_tokens.clear()
    assert make(folder, tmp_path / "b.json") == 0
    made = Background.read(tmp_path / "b.json")
    # A float32 model scores a sample with rounded weights, too.
    assert made.drawn["variants"] < plan["variants"] <= made.drawn["variants"] + 320
    assert plan["tokens"] == sum(read_tokens)
    assert plan["hours"] > 0 and "hours_h200" not in plan  # a size that was not measured


def test_a_background_of_other_settings_is_one_line(folder, tmp_path, capsys, network):
    given = ["--background", str(folder / "b.json")]
    torch.manual_seed(1)  # the network of the other tests is of seed 0
    save_model(network.__class__(network.config).eval(), tmp_path / "model")
    (tmp_path / "r.fa").symlink_to(folder / "r.fa")
    (tmp_path / "in.vcf").symlink_to(folder / "in.vcf")
    for where, more, message in (
        (folder, ["--strands", "reverse"], "strands reverse"),
        (tmp_path, [], "was computed with other model weights"),
    ):
        assert score(where, tmp_path / "out.tsv", *given, *more) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith(f"error: {folder / 'b.json'}: ") and message in line
    assert not list(tmp_path.glob("*out*"))


@pytest.fixture
def own(folder, tmp_path):
    """A copy of the model with its own background."""
    shutil.copytree(folder / "model", tmp_path / "model")
    for name in ("r.fa", "in.vcf", "g.gff3"):
        (tmp_path / name).symlink_to(folder / name)
    shutil.copyfile(folder / "b.json", tmp_path / "model" / "background.json")
    return tmp_path


def test_without_percentiles_the_output_says_why(own, capsys):
    """The column never vanishes without a line in the file itself and in the summary."""
    for output, more, why in (
        (own / "a.parquet", ["--strands", "reverse"], "strands reverse"),
        (own / "b.vcf", ["--no-background"], "none"),
    ):
        assert score(own, output, *more) == 0
        stated = settings(output)["percentile"]
        assert stated.startswith("none: ") and why in stated
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["percentile"] == stated
    assert "percentile" not in pq.read_table(own / "a.parquet").column_names
    (own / "model" / "background.json").unlink()
    assert score(own, own / "c.tsv") == 0
    assert "no background.json" in settings(own / "c.tsv")["percentile"]


def test_percentiles_survive_bfloat16_with_a_stated_tolerance(own, capsys):
    """Against the drawn variants scored by the model as it is loaded in either dtype."""
    background = Background.read(own / "model" / "background.json")
    tolerance = background.tolerances["bfloat16"]
    with carbon.Reference(own / "r.fa") as reference:
        drawn = draw_variants(reference, "change", BackgroundOptions(variants_per_kind=2))
        variants = [each.variant for each in drawn]
        deltas = [
            [s.delta for s in carbon.load(own / "model", dtype=dtype).score_variants(
                reference, variants, window_bp=24)]
            for dtype in ("float32", "bfloat16")
        ]  # fmt: skip
        moved = [
            (abs(x - y), abs(background.percentile(reference, variant, x)
                             - background.percentile(reference, variant, y)))
            for variant, x, y in zip(variants, *deltas, strict=True)
            if None not in (x, y) and background.kind_of(reference, variant)
        ]  # fmt: skip
    assert tolerance["variants"] == len(moved) > 180
    expected = np.quantile(moved, 0.95, axis=0)
    assert [tolerance["delta"], tolerance["percentile"]] == pytest.approx(expected, rel=0.05)
    assert score(own, own / "out.parquet", "--dtype", "bfloat16") == 0
    assert percentiles(own / "out.parquet")[0] is not None
    stated = settings(own / "out.parquet")["percentile"]
    assert f"95 % lie within {tolerance['percentile']:g} points" in stated
    # What is given is taken as the model's own is.
    given = ["--background", str(own / "model" / "background.json"), "--dtype", "bfloat16"]
    assert score(own, own / "given.parquet", *given) == 0
    assert percentiles(own / "given.parquet") == percentiles(own / "out.parquet")


@pytest.mark.nightly
def test_a_background_of_bfloat16_serves_bfloat16_alone(own, capsys):
    given = ["--background", str(own / "rounded.json")]
    assert make(own, own / "rounded.json", "--dtype", "bfloat16") == 0
    assert Background.read(own / "rounded.json").tolerances == {}
    assert score(own, own / "out.tsv", *given, "--dtype", "bfloat16") == 0
    assert score(own, own / "out.tsv", *given) == 2
    assert "dtype bfloat16" in capsys.readouterr().err


def test_every_percentile_names_the_variants_that_it_is_among(folder, tmp_path, capsys):
    """A background with enough new stop codons, and too few of all other consequences."""
    own_deltas, rest = np.linspace(-1, 1, 100), np.linspace(-9, 9, 50)
    snv = Variant("c1", 0, "A", "C")
    drawn = [RandomVariant(snv, ("snv stop_gained", "snv"), 1.0)] * 100
    drawn += [RandomVariant(snv, ("snv synonymous_variant", "snv"), 1.0)] * 50
    made = Background.read(folder / "b.json")
    about = {"kinds_by": "consequence", "settings": made.settings, "drawn": made.drawn}
    by_consequence = background_of(drawn, [*own_deltas, *rest], about)
    by_consequence.write(tmp_path / "b.json")
    output = tmp_path / "out.vcf"
    annotation = ["--annotation", str(folder / "g.gff3")]
    assert score(folder, output, "--background", str(tmp_path / "b.json"), *annotation) == 0
    alleles = ranked_alleles(output)
    assert {pool for *_, pool in alleles} == {"snv stop_gained", "snv", None}
    for consequence, delta, percentile, pool in alleles:
        if delta is None or consequence == "frameshift_variant":
            assert percentile is None and pool is None
            continue
        expected = "snv stop_gained" if consequence == "stop_gained" else "snv"
        assert pool == expected
        assert percentile == pytest.approx(by_consequence.percentile_in(pool, delta), abs=1e-4)
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["percentiles_of"] == dict(Counter(p for *_, p in alleles if p))


def ranked_alleles(path):
    """Return consequence, delta, percentile and its pool of every allele, read independently."""
    found = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            columns = line.split("\t")
            info = dict(x.split("=") for x in columns[7].split(";") if "=" in x)
            alts = len(columns[4].split(","))
            values = [
                info.get(f"CARBON_{name}", ".").split(",")
                for name in ("CONSEQUENCE", "DELTA", "PERCENTILE", "PERCENTILE_OF")
            ]
            values = [of_alts if len(of_alts) == alts else ["."] * alts for of_alts in values]
            found += zip(*values, strict=True)
    rows = [[None if x == "." else unquote(x) for x in row] for row in found]
    return [(a, *(None if x is None else float(x) for x in (b, c)), d) for a, b, c, d in rows]


def test_kinds_by_consequence_need_an_annotation(folder, tmp_path, capsys):
    annotation = ["--annotation", str(folder / "g.gff3")]
    assert make(folder, tmp_path / "b.json", *annotation, "--variants-per-kind", "1") == 0
    table = Background.read(tmp_path / "b.json").table
    assert {"snv stop_gained", "deletion 1 coding", "insertion 12 noncoding"} <= table.keys()
    given = ["--background", str(tmp_path / "b.json")]
    assert score(folder, tmp_path / "out.parquet", *given) == 2
    assert "also give --annotation" in capsys.readouterr().err
    assert score(folder, tmp_path / "out.parquet", *given, *annotation) == 0
    assert pq.read_table(tmp_path / "out.parquet").column_names[-1] == "percentile_of"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--sites-per-context", "5"], "--sites-per-context: only a background with --neighbour"),
        (["--neutral", "{}/g.gff3"], "--neutral: only a background with --neighbour-bp"),
        (["--neighbour-bp", "5"], "--variants-per-kind: a background with --neighbour-bp has no"),
    ],
)
def test_options_of_another_background_are_refused(folder, tmp_path, capsys, more, message):
    assert make(folder, tmp_path / "b.json", *(word.format(folder) for word in more)) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_background_of_another_genome_is_reported(folder, tmp_path, capsys):
    """The model's own background, drawn from contig c1, for variants of other genomes."""
    given = ["--background", str(folder / "b.json")]
    assert Background.read(folder / "b.json").drawn["contig_lengths_bp"] == {"c1": len(BASES)}
    own_bp = len(BASES)
    for contigs, why in (
        ({"c1": BASES, "d": "ACGT" * 20}, None),
        ({"c1": BASES + "A"}, f"c1 has {own_bp:,} bp, that of the reference {own_bp + 1:,}"),
        ({"chr1": BASES}, "the reference has none of its contigs, such as c1"),
    ):
        fasta = write_fasta(tmp_path / "other.fa", contigs)
        contig = next(iter(contigs))
        snv = f"{contig}\t115\t.\t{BASES[114]}\tT,A\t.\t.\t."
        vcf = write_vcf(tmp_path / "other.vcf", [snv])
        output = tmp_path / "out.tsv"
        assert score(folder, output, *given, "--reference", str(fasta), "--vcf", str(vcf)) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if "another genome" in line]
        assert len(lines) == (why is not None)
        stated = settings(output).get("background_genome")
        assert stated is None if why is None else why in lines[0] and why in stated
    # A background of a genetic code is for runs of that code; without a code it is for any.
    made = Background.read(folder / "b.json")
    assert made.why_other_genome({"c1": own_bp}, "11") is None
    made.drawn["annotation"] = "g.gff3"
    why = made.why_other_genome({"c1": own_bp}, "11")
    assert why == "its genetic code is of the annotation, that of this run 11"
