"""A run that goes on refuses inputs that have changed, also at equal size and time of change."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.corpus import open_store, read_manifest
from carbon.design import functions
from carbon.finetune import predict_job
from carbon.finetune.predict_job import PredictJob
from carbon.inference.jobs import LoadingOptions, ScanJob, VariantJob
from carbon.inference.options import AnnotationOptions
from carbon.inference.scan.job import fingerprints
from carbon.inference.variants import files as variant_files
from carbon.io import files
from carbon.model import save_model
from data_pipeline import build as building
from eval.entrants import Baselines, entrants_of
from tests.helpers.curation import assembly, build
from tests.helpers.files import place_gene, random_bases, replace_unnoticed, write_fasta
from tests.helpers.processes import interrupted_after


@pytest.fixture
def inputs(tmp_path) -> dict[str, Path]:
    for name in ("g.fa", "in.vcf", "genes.gff3", "contigs.tsv"):
        (tmp_path / name).write_text(f"content of {name}\n")
    return {path.name: path for path in tmp_path.iterdir() if path.is_file()}


def changed_by(paths: list[Path], fingerprints) -> list[list[str]]:
    """Replace each file unnoticed; return what then differs, by name."""
    found = []
    for path in paths:
        before = fingerprints()
        replace_unnoticed(path, b"c", b"d")
        after = fingerprints()
        found.append([name for name in before if before[name] != after[name]])
    return found


def test_variants(inputs, tmp_path):
    job = VariantJob(
        loading=LoadingOptions(model=str(tmp_path / "model")),
        reference=inputs["g.fa"],
        output=tmp_path / "out.vcf",
        genes=AnnotationOptions(
            annotation=inputs["genes.gff3"], contigs=str(inputs["contigs.tsv"])
        ),
    )
    changed = changed_by(
        list(inputs.values()), lambda: variant_files.fingerprints(job, inputs["in.vcf"])
    )
    assert sorted(changed) == [["VCF"], ["annotation file"], ["contigs"], ["reference"]]


def test_a_scan(inputs, tmp_path):
    loading = LoadingOptions(model=str(tmp_path / "model"))
    job = ScanJob(loading=loading, reference=inputs["g.fa"], output=())
    assert changed_by([inputs["g.fa"]], lambda: fingerprints(job)) == [["reference"]]


def test_predictions(inputs, tmp_path):
    """Of a fine-tuned model the head, the low-rank adapter and whole weights."""
    learned = ("finetune.json", "head.safetensors", "adapter/a.safetensors", "model/a.safetensors")
    for name in learned:
        (tmp_path / "finetuned" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "finetuned" / name).write_text(f"content of {name}")
    job = PredictJob(
        model=tmp_path / "finetuned",
        source=inputs["in.vcf"],
        output=tmp_path / "out.tsv",
        reference=inputs["g.fa"],
        contigs=str(inputs["contigs.tsv"]),
    )

    def fingerprints():
        return predict_job._fingerprints(job)

    of_model = changed_by([tmp_path / "finetuned" / name for name in learned], fingerprints)
    assert of_model == [["fine-tuned model"]] * 4
    others = [inputs[name] for name in ("in.vcf", "g.fa", "contigs.tsv")]
    assert changed_by(others, fingerprints) == [["source"], ["reference"], ["contigs"]]


def test_a_design_by_a_finetuned_model(tmp_path, monkeypatch):
    kind = functions.FUNCTION_TYPES["finetuned"]._replace(check=lambda what: None)
    monkeypatch.setitem(functions.FUNCTION_TYPES, "finetuned", kind)
    for name in ("finetune.json", "head.safetensors"):
        (tmp_path / name).write_text(f"content of {name}")
    named = [f"a=finetuned:{tmp_path}:label", "python:math:sqrt"]
    changed = changed_by([tmp_path / "head.safetensors"], lambda: functions.file_digests(named))
    assert changed == [["a"]]


def test_a_design_for_a_host(inputs, tmp_path, monkeypatch):
    kind = functions.FUNCTION_TYPES["codons"]._replace(check=lambda what: None)
    monkeypatch.setitem(functions.FUNCTION_TYPES, "codons", kind)
    files = [inputs[name] for name in ("contigs.tsv", "g.fa", "genes.gff3")]
    named = [f"a=codons:{files[0]}", f"b=codons:{files[1]}:{files[2]}", "python:math:sqrt"]
    assert changed_by(files, lambda: functions.file_digests(named)) == [["a"], ["b"], ["b"]]


def test_an_evaluation(network, tmp_path):
    save_model(network, tmp_path / "m")
    train = write_fasta(tmp_path / "train.fa", {"a": "ACGTACGTAC"})

    def identities() -> dict[str, object]:
        (model,) = entrants_of([f"m={tmp_path / 'm'}"], ["float32"], None)
        return {"model": model.identity, "baselines": Baselines([train], [1], [])._identity}

    before = identities()
    replace_unnoticed(train, b"ACGTACGTAC", b"ACGTACGTAA")
    weights = tmp_path / "m" / "model.safetensors"
    replace_unnoticed(weights, weights.read_bytes()[-8:], bytes(8))
    after = identities()
    assert [name for name in before if before[name] == after[name]] == []


def test_a_corpus_is_built_of_what_the_inputs_hold_now(tmp_path, monkeypatch, capsys):
    bases, gff3, _ = place_gene()
    (tmp_path / "genes.gff3").write_text(gff3)
    genome = write_fasta(tmp_path / "genome.fa", {"c1": bases})

    with monkeypatch.context() as patch:
        patch.setattr(building, "index_rows", interrupted_after(0, print))
        assert build(tmp_path / "c", *assembly(tmp_path)) == 130
    first_line = genome.read_bytes().splitlines()[1]
    replace_unnoticed(genome, first_line, first_line[::-1])
    assert build(tmp_path / "c", *assembly(tmp_path)) == 0
    assert "of another recipe or input; starting over" in capsys.readouterr().err
    assert build(tmp_path / "d", *assembly(tmp_path)) == 0
    assert read_manifest(tmp_path / "c")["outputs"] == read_manifest(tmp_path / "d")["outputs"]


def test_a_prepared_source_is_of_what_the_corpus_holds_now(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_SETTLED_SECONDS", -1.0)  # its sum is remembered
    path, bases = tmp_path / "train-0.parquet", random_bases(600)
    table = pa.table({"sequence": [bases]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    before = open_store({str(path): None}, tmp_path / "prepared", "dna")
    assert before.letters(0, 0, 600).tobytes().decode() == bases
    replace_unnoticed(path, bases.encode(), bases[::-1].encode())
    after = open_store({str(path): None}, tmp_path / "prepared", "dna")
    assert after.letters(0, 0, 600).tobytes().decode() == bases[::-1]
    assert after.key != before.key
