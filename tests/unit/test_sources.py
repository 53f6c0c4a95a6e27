"""The table of sources, and all that reads it: build, report, the manifest, training."""

import json
import shutil

import pytest

from carbon.corpus import BOTH_STRANDS, read_manifest, read_source, reads_both_strands
from carbon.errors import ConfigError, CorpusError
from data_pipeline.__main__ import main
from data_pipeline.cuts import contig_chunks
from data_pipeline.inspect.report import BASE_MIXTURE
from data_pipeline.sources import SOURCES, Source, usual_sources
from tests.helpers.curation import assembly, build
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.runs import RECIPE
from train.config import TrainConfig
from train.data import open_rows
from train.schedule import Schedule

ADDED = Source(name="whole", cut=contig_chunks, both_strands=True, input="contigs")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """All sources of one small genome, and one of files that have a name of their own."""
    folder = tmp_path_factory.mktemp("sources")
    assert main(["simulate", "--output", f"{folder}/genome", "--genome-bp", "60000"]) == 0
    write_fasta(folder / "own.fa", {f"s{i}": random_bases(3000, i) for i in range(3)})
    settings = [
        *assembly(folder / "genome", sources=json.dumps(list(SOURCES))),
        f"files.0.path={folder}/own.fa", "files.0.source=own", "files.0.both_strands=true",
    ]  # fmt: skip
    assert build(folder / "corpus", *settings) == 0
    return folder / "corpus"


def opened(corpus, name, *more):
    words = [f"data.corpus={corpus}", "output=o", "data.microbatch_tokens=64"]
    words += [f"phases.{i}.mixture={{{name}=1.0}}" for i in (0, 1)]
    words += [f"phases.{i}.context_tokens=64" for i in (0, 1)]
    config = TrainConfig.load(RECIPE, [*words, *more])
    return open_rows(config, Schedule(config))


@pytest.mark.parametrize("name", [*SOURCES, "own"])
def test_a_source_is_built_told_and_read(corpus, name):
    records = read_source(corpus, name, "train")
    assert records.num_rows > 0 and set(records["source"].to_pylist()) == {name}
    both_strands = name == "own" or SOURCES[name].both_strands
    assert read_manifest(corpus)["both_strands"][name] is both_strands
    rows = opened(corpus, name)
    reverse = {rows.reading(rows.order[i]).reverse for i in range(40)}
    assert reverse == ({True, False} if both_strands else {False})


def test_a_weight_of_soft_masked_bases_needs_soft_masked_bases(tmp_path):
    upper = {f"s{i}": random_bases(3000, i) for i in range(3)}
    weight = "data.soft_mask_weight=0.1"
    for name, last in (("upper", random_bases(3000, 4)), ("mixed", random_bases(3000, 4).lower())):
        write_fasta(tmp_path / f"{name}.fa", upper | {"s4": last})
        path = f"files.0.path={tmp_path}/{name}.fa"
        assert build(tmp_path / name, path, "files.0.source=own", "files.0.both_strands=true") == 0
    assert len(opened(tmp_path / "mixed", "own", weight)) > 0
    with pytest.raises(ConfigError, match=r"has no soft-masked .* base, and data.soft_mask_weight"):
        opened(tmp_path / "upper", "own", weight)


@pytest.mark.parametrize("name", ["mrna", "eukaryote"])
def test_what_the_manifest_says_is_done(corpus, tmp_path, name):
    """The other way around; not at all, as of older corpora; and by no value that can be meant."""
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy, ignore=shutil.ignore_patterns("prepared"))
    manifest = read_manifest(copy)
    usual = SOURCES[name].both_strands
    assert usual == (name in BOTH_STRANDS) == reads_both_strands(tmp_path / "absent", name)
    for said, expected in (({name: not usual}, not usual), ({}, usual)):
        (copy / "manifest.json").write_text(json.dumps(manifest | {"both_strands": said}))
        assert reads_both_strands(copy, name) is expected
        assert opened(copy, name).sources[name].both_strands is expected
    (copy / "manifest.json").write_text(json.dumps(manifest | {"both_strands": {name: "yes"}}))
    with pytest.raises(CorpusError, match=r"manifest\.json: both_strands"):
        reads_both_strands(copy, name)


def test_a_source_that_is_added(tmp_path, monkeypatch, capsys):
    """It is known to recipes, the build, its manifest and training."""
    write_fasta(tmp_path / "g.fa", {"c1": random_bases(20_000)})
    settings = [f"assemblies.0.genome={tmp_path}/g.fa", "assemblies.0.holdout=[]"]
    settings.append('assemblies.0.sources=["whole"]')
    assert build(tmp_path / "c", *settings) == 2
    assert "sources.0: expected one of eukaryote, " in capsys.readouterr().err
    monkeypatch.setitem(SOURCES, "whole", ADDED)
    assert build(tmp_path / "c", *settings) == 0
    assert read_manifest(tmp_path / "c")["both_strands"] == {"whole": True}
    assert opened(tmp_path / "c", "whole").sources["whole"].both_strands


def test_what_sources_are_the_default_for():
    assert usual_sources("pro") == ("prokaryote",)
    for species_type in ("", "fng", "mam"):
        assert usual_sources(species_type) == ("eukaryote", "mrna")
    assert SOURCES["mrna"].near_duplicates and SOURCES["mrna_splice"].near_duplicates
    assert not SOURCES["eukaryote"].near_duplicates and SOURCES["eukaryote_concatenated"].joined
    published = {"eukaryote": 0.7, "mrna": 0.16, "mrna_splice": 0.04, "prokaryote": 0.1}
    assert published.items() <= BASE_MIXTURE.items() and sum(BASE_MIXTURE.values()) <= 1
