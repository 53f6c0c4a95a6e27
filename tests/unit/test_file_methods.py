"""Methods of `Model` on files, against the files that the commands write."""

import dataclasses
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import carbon
from carbon.cli import main
from carbon.errors import GenomeError, UserError
from carbon.inference import options
from carbon.inference.jobs import EmbedJob, ScanJob, ScoreJob, VariantJob
from carbon.model import LoadedModel, save_model
from carbon.parallel.options import WorkerOptions
from carbon.tokenizer import NATIVE
from tests.helpers.files import random_bases, write_fasta, write_vcf

ROOT = Path(__file__).parents[2]
BASES = random_bases(600, 4)
GENE = (
    'c\ts\tgene\t100\t400\t.\t+\t.\tgene_id "g"; gene_name "ABC";\n'
    'c\ts\ttranscript\t100\t400\t.\t+\t.\tgene_id "g"; transcript_id "t";\n'
    'c\ts\texon\t100\t400\t.\t+\t.\tgene_id "g"; transcript_id "t";\n'
    'c\ts\tCDS\t100\t399\t.\t+\t0\tgene_id "g"; transcript_id "t";\n'
)
OF_WORKERS = {"device", "processes", "ray", "resume"}


def record(position: int, rest: str = ".\tPASS\t.") -> str:
    base = BASES[position - 1]
    return f"c\t{position}\t.\t{base}\t{'ACGT'['ACGT'.index(base) - 1]}\t{rest}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("files")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c": BASES, "d": "ACGT" * 50})
    write_fasta(folder / "s.fa", {"one": BASES[:200], "two": "acgtnnnacgt", "three": "NNN"})
    (folder / "g.gtf").write_text(GENE)
    deletion = f"c\t300\tx\t{BASES[299:303]}\t{BASES[299]},<DEL>\t50\tq10\t."
    records = [*map(record, (20, 120, 150)), deletion, *map(record, range(310, 590, 40))]
    write_vcf(folder / "v.vcf", records)
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    return carbon.load(folder / "model")


def written(folder, command, *words):
    """Return the rows that a command writes as Parquet."""
    output = folder / "command.parquet"
    model = ["--model", str(folder / "model")]
    assert main([*command.split(), *model, *map(str, words), "--output", str(output)]) == 0
    return pq.read_table(output)


def test_outputs_store_checksums_of_model_and_reference(folder):
    sequences, reference = folder / "s.fa", ["--reference", folder / "r.fa"]
    region = [*reference, "--region", "c:100-110", "--window", 60]
    runs = {
        "variants --window 60": ["--vcf", folder / "v.vcf", *reference],
        "embed --window 60": ["--vcf", folder / "v.vcf", *reference],
        "scan": region,
        "dependency": region,
        "score": [sequences],
        "embed": [sequences],
    }
    found = {}
    for command, words in runs.items():
        settings = json.loads(written(folder, command, *words).schema.metadata[b"carbon"])
        found[command] = (settings["model_sha256"], settings.get("contigs_sha256"))
    model, contigs = found.pop("variants --window 60")
    of_reference = [*found.values()][:3]
    assert of_reference == [(model, contigs)] * 3 and contigs
    assert [*found.values()][3:] == [(model, None)] * 2


def check_equal(table, expected):
    """Compare rows, types and settings exactly; a NaN equals a NaN."""
    found = table.to_arrow()
    assert found.schema.equals(expected.schema)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert repr(list(table)) == repr(expected.to_pylist()) and len(table) == len(expected) > 0
    theirs = json.loads(expected.schema.metadata[b"carbon"])
    assert {**table.settings, "model": 0} == {**theirs, "model": 0}


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("words", "keywords"),
    [
        ([], {}),
        (
            ["--annotation", "g.gtf", "--region", "c:100-400", "--scores", "jsd", "--window", 120,
             "--strands", "forward"],
            {"annotation": "g.gtf", "region": carbon.Interval("c", 99, 400), "scores": ["jsd"],
             "window_bp": 120, "strands": "forward"},
        ),
        (
            ["--filters", "q10", "--min-qual", 40, "--protocol", "tiled", "--downstream", 30],
            {"filters": "q10", "min_qual": 40, "protocol": "tiled", "downstream_bp": 30},
        ),
    ],
)  # fmt: skip
def test_variants(folder, loaded, monkeypatch, words, keywords, processes):
    monkeypatch.chdir(folder)
    expected = written(folder, "variants", "--reference", "r.fa", "--vcf", "v.vcf", *words)
    table = loaded.score_vcf("v.vcf", reference="r.fa", processes=processes, **keywords)
    check_equal(table, expected)
    assert table.summary["alleles"] == len(table) and table.summary["output"] is None
    with carbon.Reference("r.fa") as reference:
        again = loaded.score_vcf(Path("v.vcf"), reference=reference, output="o.vcf", **keywords)
    check_equal(again, expected)
    files = ["--reference", "r.fa", "--vcf", "v.vcf", "--output", "command.vcf"]
    assert main(["variants", "--model", loaded.source, *files, *map(str, words)]) == 0
    assert (folder / "o.vcf").read_bytes() == (folder / "command.vcf").read_bytes()


@pytest.mark.parametrize("per_base", [False, True])
def test_sequences(folder, loaded, per_base):
    words = [folder / "s.fa", "--strands", "both", *(["--per-base"] if per_base else [])]
    expected = written(folder, "score", *words)
    output = folder / "o.tsv"
    for kept in (None, output):
        table = loaded.score_fasta(folder / "s.fa", per_base=per_base, strands="both", output=kept)
        check_equal(table, expected)
    assert len(output.read_text().splitlines()) == len(expected) + 2


def test_embeddings(folder, loaded):
    expected = written(folder, "embed", folder / "s.fa", "--layer", 1)
    for kept in (None, folder / "o.npz", folder / "o.parquet"):
        table = loaded.embed_fasta(folder / "s.fa", layer=1, output=kept)
        check_equal(table, expected)
        assert kept is None or kept.exists()
    vectors = np.stack(table.to_pandas()["embedding"])
    assert np.array_equal(vectors, np.stack(list(loaded.embed(
        [bases for _, bases in carbon.genome.read_sequences(folder / "s.fa")], layer=1
    ))), equal_nan=True)  # fmt: skip


def test_scans(folder, loaded):
    place = ["--reference", folder / "r.fa", "--window", 120]
    gene = ["--annotation", folder / "g.gtf", "--gene", "ABC", "--flank", 5]
    table = loaded.scan_region(
        reference=folder / "r.fa", annotation=folder / "g.gtf", gene="ABC", flank_bp=5,
        window_bp=120, output=[folder / "o.tsv"],
    )  # fmt: skip
    check_equal(table, written(folder, "scan", *place, *gene))
    assert table.summary["outputs"] == [str(folder / "o.tsv")]
    (folder / "two.bed").write_text("c\t10\t30\nd\t0\t20\n")
    expected = written(folder, "scan", *place, "--regions-file", folder / "two.bed")
    regions = [carbon.Interval("c", 10, 30), carbon.Interval("d", 0, 20)]
    table = loaded.scan_region(regions, reference=folder / "r.fa", window_bp=120)
    assert table.to_arrow().to_pylist() == expected.to_pylist()
    with pytest.raises(UserError, match="give one of region, regions_file, contig, gene"):
        loaded.scan_region(reference=folder / "r.fa")


def test_comparisons(folder, loaded, capsys):
    files = [folder / "narrow.parquet", folder / "wide.tsv"]
    for file, window_bp in zip(files, (60, 120), strict=True):
        loaded.score_vcf(
            folder / "v.vcf", reference=folder / "r.fa", window_bp=window_bp, output=file
        )
    capsys.readouterr()
    output = folder / "compared.parquet"
    assert main(["compare", *map(str, files), "--top", "3", "--output", str(output)]) == 0
    summary = json.loads(capsys.readouterr().out)
    table = carbon.compare.run(*files, top=3)
    check_equal(table, pq.read_table(output))
    assert table.summary == summary and len(summary["top"]) == 3


@pytest.mark.parametrize("kind", ["name", "Model", "None"])
def test_the_model_of_a_fine_tuning_run(folder, loaded, monkeypatch, kind):
    """The function passes on what the command would; the run itself has its own tests."""
    table = {
        "model": "yeast",
        "output": "out",
        "data": {"path": "labels.tsv", "labels": ["y"]},
        "task": {"type": "binary"},
    }
    seen = []
    monkeypatch.setattr("carbon.finetune.job.run_finetune", lambda config, **_: seen.append(config))
    model = {"name": loaded.source, "Model": loaded, "None": None}[kind]
    carbon.finetune.run(model, table, overrides=("seeds=[3]",))
    carbon.finetune.run(model, seen[0])
    first, second = seen
    assert first == second and first.seeds == (3,)
    assert first.model == ("yeast" if kind == "None" else loaded.source)


def test_a_table_lasts_as_long_as_its_object(folder, loaded, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    table = loaded.score_fasta(folder / "s.fa")
    assert not list(tmp_path.iterdir())
    first, second = iter(table), iter(table)
    assert [row["name"] for row in first] == [row["name"] for row in second] != []
    assert pa.table(table).equals(table.to_arrow())
    frame = table.to_pandas()
    assert list(frame.columns) == table.columns and len(frame) == 3
    assert frame["log_likelihood"].isna().tolist() == [False, False, True]
    assert "3 rows" in table._repr_html_() and repr(table).startswith("<3 rows: name, bases")


def flat_fields(job, parts):
    """Return the fields of a job, with the fields of its parts in their place, and the defaults."""
    found = {}
    for each in dataclasses.fields(job):
        if each.name in parts:
            found |= flat_fields(parts[each.name], {})
        else:
            found[each.name] = each.default
    return found


@pytest.mark.parametrize(
    ("method", "job", "parts", "of_the_command"),
    [
        ("score_vcf", VariantJob,
         {"method": options.VariantOptions, "genes": options.AnnotationOptions},
         {"vcf", "variant", "dry_run", "lenient"}),
        ("score_fasta", ScoreJob, {"method": options.ScoreOptions}, set()),
        ("embed_fasta", EmbedJob, {"method": options.EmbedOptions}, {"variants"}),
        ("scan_region", ScanJob, {"method": options.ScanOptions}, {"genome", "dry_run"}),
    ],
)  # fmt: skip
def test_names_and_defaults_are_those_of_the_command(method, job, parts, of_the_command):
    parameters = inspect.signature(getattr(carbon.Model, method)).parameters
    expected = flat_fields(job, parts) | flat_fields(WorkerOptions, {})
    absent = {*of_the_command, "loading", "device"}
    assert set(expected) - absent == set(parameters) - {"self", "path"}
    own = {"reference", "output", "processes"}  # required, a file, and this process
    for name in set(expected) - absent - own:
        assert parameters[name].default == expected[name], name
    assert parameters["processes"].default == 0


SCRIPT = """
import asyncio, sys
import carbon

print("started")
model = carbon.load("model")
keywords = dict(reference="r.fa", window_bp=120)
alone = model.score_vcf("v.vcf", **keywords)
table = model.score_vcf("v.vcf", processes=2, **keywords)
assert list(table) == list(alone) and len(table) > 5

async def both():
    calls = [asyncio.to_thread(model.score_vcf, "v.vcf", processes=n, **keywords) for n in (0, 2)]
    return await asyncio.gather(*calls)

assert all(list(each) == list(alone) for each in asyncio.run(both()))
print("done")
"""


@pytest.mark.nightly
def test_a_script_without_a_guard_uses_two_processes(folder):
    """Also in an asyncio program; no child runs the script again, and nothing is printed."""
    (folder / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "started\ndone\n"), done.stderr
    assert done.stderr == ""


def test_mistakes_are_one_line(folder, loaded, network):
    files = {"reference": folder / "r.fa"}
    for region, message in (
        ([], "has no intervals"),
        ([carbon.Interval("c", 0, 9), carbon.Interval("c", 5, 5)], r"interval 2 \(c, .* no bases"),
    ):
        with pytest.raises(GenomeError, match=message):
            loaded.score_vcf(folder / "v.vcf", **files, region=region)
    for call in (
        lambda **options: loaded.score_vcf(folder / "v.vcf", **files, **options),
        lambda **options: loaded.score_fasta(folder / "s.fa", **options),
        lambda **options: loaded.embed_fasta(folder / "s.fa", **options),
        lambda **options: loaded.scan_region("c:1-9", **files, **options),
    ):
        with pytest.raises(UserError, match="resume: give the output"):
            call(resume=True)
    with pytest.raises(UserError, match="not loaded from a folder"):
        carbon.Model(LoadedModel(network, NATIVE)).score_fasta(folder / "s.fa")


def test_a_closed_model(folder):
    with carbon.load(folder / "model") as model:
        assert next(model.score(["ACGTAC"])).num_known_bases == 6
    for use in (
        lambda: next(model.score(["ACGTAC"])),
        lambda: model.score_fasta(folder / "s.fa"),
        lambda: model.generate(["ACG"], 6),
        lambda: model.dtype,
    ):
        with pytest.raises(UserError, match=r"closed; load it again with carbon\.load"):
            use()
    model.close()
