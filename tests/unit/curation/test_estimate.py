"""What a build is told to take, against what it takes; seconds are for the lab book."""

import tomllib

import pytest

from carbon.corpus import read_manifest
from data_pipeline.__main__ import main
from data_pipeline.estimate import estimate
from data_pipeline.recipe import BuildConfig
from tests.helpers.curation import assembly, build
from tests.helpers.files import random_bases

SIZES_KBP = (20, 30, 40, 20, 50, 30, 66)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Seven assemblies, of which three are opened, and one file of reads."""
    folder = tmp_path_factory.mktemp("genomes")
    settings = []
    for i, kbp in enumerate(SIZES_KBP):
        words = ["--genome-bp", f"{kbp}000", "--seed", str(i)]
        assert main(["simulate", "--output", f"{folder}/{i}", *words]) == 0
        settings += assembly(folder / str(i), i, name=f"g{i}", sources='["eukaryote","mrna"]')
    reads = (f"@r{i}\n{random_bases(150, i)}\n+\n{'I' * 150}\n" for i in range(3000))
    (folder / "r.fq").write_text("".join(reads))
    files = {"path": folder / "r.fq", "source": "reads", "both_strands": "true"}
    return [*settings, *(f"files.0.{key}={value}" for key, value in files.items())]


def words_of(output, recipe):
    return [w for each in (f"output={output}", *recipe) for w in ("--set", each)]


@pytest.mark.nightly
def test_records_bases_and_disk_are_within_a_third(recipe, tmp_path, capsys):
    assert main(["build", *words_of(tmp_path / "c", recipe), "--dry-run"]) == 0
    out = capsys.readouterr().out
    config = BuildConfig.from_table(tomllib.loads(out), "what is printed")
    assert "# estimated from 4 of 8 inputs\n" in out and "# core-hours: " in out
    assert not list(tmp_path.iterdir())
    told = estimate(config)
    assert build(tmp_path / "c", *recipe) == 0
    sources = read_manifest(tmp_path / "c")["sources"]
    assert set(told.records) == set(sources) == {"eukaryote", "mrna", "reads"}
    for source, splits in sources.items():
        for guessed, what in ((told.records, "records"), (told.bases, "bases")):
            taken = sum(split[what] for split in splits.values())
            assert guessed[source] == pytest.approx(taken, rel=1 / 3), (source, what)
    # Of the reads, which were counted and sampled from their beginning, all is known.
    assert told.records["reads"] == pytest.approx(3000, rel=0.01)
    taken = sum(path.stat().st_size for path in (tmp_path / "c").rglob("*.parquet"))
    assert told.corpus_bytes == pytest.approx(taken, rel=1 / 3)
    assert set(told.seconds) == {"start", "extract", "dedup", "write", "publish"}
    assert min(told.seconds.values()) >= 0 and told.memory_bytes > 5e7


def test_without_its_inputs_the_recipe_is_printed_and_its_secrets_are_not(capsys):
    words = words_of("s3://me:secret@lab/c", ["assemblies.0.genome=none.fa", "cache=kept"])
    assert main(["build", *words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert 'output = "s3://lab/c"' in out and 'cache = "kept"' in out and "secret" not in out
    assert out.endswith("# not estimated: none.fa: no such file\n")
