"""What the demo's panels are tested with: a genome with one gene, a model, a run, and a visitor."""

import html
import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import gradio as gr
import numpy as np
import torch
from transformers import LlamaForCausalLM

from carbon.cli import main as carbon
from carbon.genome import Interval, reverse_complement
from carbon.genome.genome import Genome
from carbon.inference import Model, load
from carbon.model import save_model
from demo.app import make_panels
from demo.fields import Values, checked_values
from demo.gene_measures import MEASURES
from demo.lab import Lab
from demo.learning_curves import Learning
from demo.limits import Limits
from demo.models import AllowedModels
from demo.page import Page, Shell
from demo.panel import Panel, Progress, Result
from demo.panels.gene import CONSTRAINT, MAP, TRACK
from demo.preview import Card, Previews
from demo.turns import Turns
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.run_lines import step_line, write_run

GENE = "ABC"
_EXONS, _CDS = ((101, 500), (601, 1000)), ((111, 500), (601, 930))  # 1-based; 240 codons
_CONTIG_BP = 1400


def genbank_record() -> str:
    """Return a record of 900 bases, `own`, with the gene XYZ1."""
    bases = random_bases(900, seed=3).lower()
    rows = "".join(f"{at + 1:>9} {bases[at : at + 60]}\n" for at in range(0, 900, 60))
    return f"""LOCUS       own       900 bp    DNA     linear   UNK 01-JAN-2020
FEATURES             Location/Qualifiers
     gene            101..700
                     /gene="XYZ1"
ORIGIN
{rows}//
"""


def write_genome(folder: Path, contig: str = "c1", strand: str = "+") -> tuple[Path, Path]:
    """Write a FASTA of 1,400 bases and a GFF3 of one gene of two exons; return both paths."""
    bases = list(random_bases(_CONTIG_BP, seed=5))
    coding = "ATG" + ("TACCAATTAGGAGCA" * 48)[:714] + "TAA"
    bases[110:500], bases[600:930] = coding[:390], coding[390:]
    bases[500:502], bases[598:600] = "GT", "AG"
    exons, cds, text = _EXONS, _CDS, "".join(bases)
    if strand == "-":
        text = reverse_complement(text)
        exons, cds = (
            tuple((_CONTIG_BP + 1 - last, _CONTIG_BP + 1 - first) for first, last in spans)
            for spans in (exons, cds)
        )
    whole = (min(exons)[0], max(exons)[1])
    lines = [("gene", whole, f"ID=g1;Name={GENE}"), ("mRNA", whole, "ID=t1;Parent=g1")]
    lines += [("exon", span, "Parent=t1") for span in exons]
    lines += [("CDS", span, "ID=p1;Parent=t1") for span in cds]
    gff = folder / "genes.gff3"
    gff.write_text("##gff-version 3\n" + "".join(
        f"{contig}\ttest\t{kind}\t{first}\t{last}\t.\t{strand}\t.\t{attributes}\n"
        for kind, (first, last), attributes in lines
    ))  # fmt: skip
    return write_fasta(folder / "genome.fa", {contig: text}), gff


def add_transcript(gff: Path, contig: str = "c1") -> None:
    """Add the transcript `t2` to the forward gene: the first exon alone, with 130 codons."""
    kinds = (("mRNA", "ID=t2;Parent=g1"), ("exon", "Parent=t2"), ("CDS", "ID=p2;Parent=t2"))
    spans = (_EXONS[0], _EXONS[0], _CDS[0])
    with gff.open("a", encoding="utf-8") as lines:
        for (kind, attributes), (first, last) in zip(kinds, spans, strict=True):
            columns = (contig, "test", kind, first, last, ".", "+", ".", attributes)
            lines.write("\t".join(map(str, columns)) + "\n")


def make_lab(
    folder: Path, model: Model, contig: str = "c1", learned: Learning | None = None
) -> Lab:
    """Return a lab whose model and genome are files, as the code that panels show needs them."""
    save_model(model.model.network, folder / "model")
    genome = Genome.open(*write_genome(folder, contig))
    return Lab(model, str(folder / "model"), genome, folder, learned=learned)


def make_full_lab(folder: Path, model: Model, name: str = "a_run") -> Lab:
    """Return a lab where every page has something to show: a training run and a predictor too."""
    from tests.helpers.finetune import BINARY

    lab = make_lab(folder, model, learned=learned_example())
    write_run(lab.runs / name, [step_line(n, name) for n in range(1, 61)], first=name)
    write_predictor(lab, "activity", BINARY)
    return lab


def write_predictor(lab: Lab, name: str, task: Any, **options: Any) -> Any:
    """Write a folder of a model with a head that has learned nothing; return the model."""
    from carbon.finetune.config import MethodConfig
    from carbon.finetune.predict import write_finetuned
    from tests.helpers.finetune import finetuned_of

    method = MethodConfig(**{"name": "full", "dropout": 0.0} | options)
    finetuned, opened = finetuned_of(lab.runs / "model", task, method, seed=len(name))
    folder = lab.runs / name
    folder.mkdir(parents=True)
    write_finetuned(folder, finetuned.network, opened, finetuned.manifest)
    return finetuned


def learned_example() -> Learning:
    """Return three steps of the gene and what lies before it, where it alone becomes known."""
    nats = np.full((3, 1000), np.log(4), dtype=np.float16)
    nats[1, 110:500:3], nats[2, 100:] = 0.7, 0.5
    return Learning(Interval("c1", 0, 1000), (0, 25, 9000), nats)


def allow_other(lab: Lab) -> None:
    """Offer a second model, `other`, a network of the same size with other weights."""
    torch.manual_seed(7)
    save_model(LlamaForCausalLM(small_config()), lab.runs / "other")
    lab.allowed = AllowedModels({"other": str(lab.runs / "other")}, False, load)


def page_of(
    panel: Panel, limits: Limits | None = None, previews: Mapping[str, Card] | None = None
) -> Page:
    """Return the page of a panel, on a site of its own, with cards by their paths."""
    cards = Previews((previews or {}).items())
    with gr.Blocks() as blocks:
        return Page(blocks, panel, Shell(limits or Limits(), Turns(), cards, []))


def cover_little(
    monkeypatch: Any, track_bp: int = 6000, constraint_bp: int = 40, map_bp: int = 16
) -> None:
    """Let the views of Gene cover few bases."""
    monkeypatch.setattr("demo.panels.gene._MOST_BP", track_bp)
    for name, most_bp in {TRACK: track_bp, CONSTRAINT: constraint_bp, MAP: map_bp}.items():
        monkeypatch.setitem(MEASURES, name, MEASURES[name]._replace(most_bp=most_bp))


def four_alleles(lab: Lab, path: Path) -> Path:
    """Write a VCF of four alleles: an insertion with a symbolic one, a deletion, a wrong REF."""
    bases = lab.genome.reference.fetch(Interval("c1", 0, 1400))
    wrong = "A" if bases[699] != "A" else "C"
    return write_vcf(path, [
        f"c1\t300\t.\t{bases[299]}\t{bases[299]}T,<DEL>\t.\t.\t.",
        f"c1\t400\t.\t{bases[399:402]}\t{bases[399]}\t.\t.\t.",
        f"c1\t700\t.\t{wrong}\tT\t.\t.\t.",
    ])  # fmt: skip


def panel_of(lab: Lab, name: str) -> Panel:
    """Return the panel of a page."""
    (panel,) = [panel for panel in make_panels(lab) if panel.name == name]
    return panel


def values_of(panel: Panel, **given: Any) -> Values:
    """Return a value for every field, its default where none is given."""
    return checked_values(panel.fields, given)


def answered(panel: Panel, given: Mapping[str, Any]) -> Result:
    """Return the last result of a panel, which JSON can hold."""
    items = panel.answer(checked_values(panel.fields, given))
    result = [item for item in items if not isinstance(item, Progress)][-1]
    json.dumps(result, allow_nan=False)
    return result


def visited(panel: Panel, **given: Any) -> tuple[Values, Result, Mapping[str, Any]]:
    """Return the values of a visit, the answer, and what the views show of it."""
    values = values_of(panel, **given)
    result = answered(panel, given)
    return values, result, panel.show(values, result)


def downloads_of(shown: Mapping[str, Any]) -> dict[str, str]:
    """Return the files that the views offer, by their names."""
    markup = "".join(view for view in shown.values() if isinstance(view, str))
    found = re.findall(r'download="([^"]*)" href="data:[^,]*,([^"]*)"', markup)
    return {html.unescape(name): unquote(text) for name, text in found}


def printed_by(program: str) -> list[str]:
    """Run a program of a page; return the lines that it prints."""
    with redirect_stdout(StringIO()) as out:
        exec(program, {})
    return out.getvalue().splitlines()


def run_commands(lines: str, capsys: Any) -> list[str]:
    """Run command lines of a page, ours in this process; return what each of ours prints."""
    from train.__main__ import main as train

    capsys.readouterr()
    printed = []
    for line in lines.splitlines():
        match shlex.split(line, comments=True):
            case []:
                continue
            case ["carbon", *words]:
                assert carbon(words) == 0, line
                printed.append(capsys.readouterr().out)
            case ["python", "-c", program]:
                exec(program, {})
            case ["python", "-m", "train", *words]:
                assert train(words) == 0, line
                printed.append(capsys.readouterr().out)
            case _:  # writes a file by the shell
                subprocess.run(["bash", "-c", line], check=True)
    return printed
