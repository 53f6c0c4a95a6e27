"""The Snakefile scores a VCF in five regions; the joined parts have the records of one run."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carbon.cli import main
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta, write_vcf

SCATTER = Path(__file__).parents[3] / "scripts" / "scatter"
BASES = random_bases(600, 4)
BED = "".join(f"c\t{start}\t{start + 120}\n" for start in range(0, 600, 120))


@pytest.fixture
def folder(tmp_path, network):
    save_model(network, tmp_path / "model")
    write_fasta(tmp_path / "r.fa", {"c": BASES})
    records = [
        f"c\t{n}\t.\t{BASES[n - 1]}\t{'ACGT'['ACGT'.index(BASES[n - 1]) - 1]}\t.\t.\t."
        for n in range(1, 600, 7)
    ]
    write_vcf(tmp_path / "in.vcf", records, "##contig=<ID=c,length=600>\n")
    (tmp_path / "regions.bed").write_text(BED)
    return tmp_path


@pytest.mark.nightly
def test_five_regions_by_snakemake(folder, capsys, monkeypatch):
    if importlib.util.find_spec("snakemake") is None or shutil.which("bcftools") is None:
        pytest.skip("snakemake or bcftools is not installed")
    words = ["variants", "--model", f"{folder}/model", "--reference", f"{folder}/r.fa", "--vcf"]
    words += [f"{folder}/in.vcf", "--window", "60", "--output", f"{folder}/whole.vcf"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(words) == 0
    whole = json.loads(capsys.readouterr().out)
    config = {
        "vcf": "in.vcf", "reference": "r.fa", "model": "model", "regions": "regions.bed",
        "output": "joined.vcf.gz", "carbon": f"{sys.executable} -m carbon",
        "options": "--window 60",
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "snakemake", "--snakefile", SCATTER / "Snakefile", "--cores", "2",
         "--config", *(f"{name}={value}" for name, value in config.items())],
        cwd=folder, check=True,
    )  # fmt: skip
    joined = subprocess.run(["bgzip", "-dc", folder / "joined.vcf.gz"], capture_output=True)
    assert joined.stdout == (folder / "whole.vcf").read_bytes().replace(
        str(folder / "model").encode(), b"model"
    )
    summary = json.loads((folder / "joined.vcf.gz.json").read_text())
    assert summary["records"] == whole["records"] and len(summary["region"]) == 5
    assert not list(folder.glob("parts/*"))


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("groovy") is None, reason="groovy is not installed")
def test_the_workflow_of_nextflow_is_valid_groovy(tmp_path):
    """Nextflow's language is Groovy; without Nextflow only the syntax can be checked."""
    script = (SCATTER / "variants.nf").read_text("utf-8")
    torn = script.replace("workflow {", "workflow")
    check = "args.each { new GroovyShell().parse(new File(it)) }"
    for text, is_valid in ((script, True), (torn, False)):
        (tmp_path / "workflow.nf").write_text(text, "utf-8")
        done = subprocess.run(
            ["groovy", "-e", check, str(tmp_path / "workflow.nf")], capture_output=True, text=True
        )
        assert (done.returncode == 0) is is_valid, done.stderr


def test_the_commands_of_both_workflows_are_those_of_carbon(capsys):
    """Every option that they give exists; `{...}` and `${...}` are in pairs."""
    for name in ("Snakefile", "variants.nf"):
        text = (SCATTER / name).read_text()
        assert text.count("{") == text.count("}") and text.count("(") == text.count(")")
        (command,) = re.findall(r"variants (--model.*?) > ", text.replace("\\\n", ""), re.DOTALL)
        options = set(re.findall(r"--[a-z-]+", command))
        assert main(["variants", "--help"]) == 0
        known = capsys.readouterr().out
        assert options and all(f"{option} " in known for option in options), name
