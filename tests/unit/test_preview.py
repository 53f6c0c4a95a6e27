"""What `python -m train preview` prints, and rows traced back to the assembly they come from."""

import json

import pytest

from carbon.config import load_config
from carbon.corpus import read_source
from carbon.genome import Interval, Reference, reverse_complement
from data_pipeline.__main__ import main as data_pipeline
from train.__main__ import main
from train.config import TrainConfig
from train.data import open_rows
from train.preview import mixture_of

RECIPE = """
output = "{folder}/run"
seed = 3
[model]
preset = "tiny"
[data]
corpus = "{folder}/corpus"
context_tokens = 128
batch_rows = 8
microbatch_rows = 4
[[stages]]
name = "first"
objective = "ce"
tokens = 40_000
mixture = {{ eukaryote = 0.75, mrna = 0.25 }}
learning_rate = 1e-3
schedule = "constant"
[[stages]]
name = "second"
objective = "fns"
tokens = 20_000
mixture = {{ eukaryote = 0.5, mrna = 0.25, promoter = 0.25 }}
learning_rate = 1e-3
schedule = "constant"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preview")
    words = ["simulate", "--output", f"{folder}/genome", "--genome-bp", "90000", "--seed", "2"]
    assert data_pipeline(words) == 0
    settings = [
        f"output={folder}/corpus",
        f"assemblies.0.genome={folder}/genome/genome.fa",
        f"assemblies.0.annotation={folder}/genome/genes.gff3",
        "assemblies.0.species_type=inv",
        'assemblies.0.sources=["eukaryote", "mrna", "promoter"]',
    ]
    assert data_pipeline(["build", *(w for s in settings for w in ("--set", s))]) == 0
    (folder / "run.toml").write_text(RECIPE.format(folder=folder))
    return folder


@pytest.fixture(scope="module")
def rows(folder):
    return open_rows(load_config(TrainConfig, folder / "run.toml"))


def test_every_piece_is_its_place_in_the_assembly(folder, rows):
    records = {
        name: read_source(folder / "corpus", name, "train").to_pylist()
        for name in ("eukaryote", "mrna", "promoter")
    }
    flipped = 0
    with Reference(folder / "genome" / "genome.fa") as reference:
        for i in range(len(rows)):
            sample = rows.order[i]
            reading = rows.reading(sample)
            for piece in rows.pieces(sample):
                record = records[sample.source][piece.record]
                last = piece.start + len(piece.letters)
                forward = "".join(
                    bases if segment["strand"] == "+" else reverse_complement(bases)
                    for segment in record["segments"]
                    for bases in (
                        reference.fetch(
                            Interval(record["record_id"], segment["start"], segment["end"])
                        ),
                    )
                )[piece.start : last]
                expected = reverse_complement(forward) if reading.reverse else forward
                assert piece.letters.tobytes().decode() == expected
                flipped += reading.reverse
                assert not (reading.reverse and sample.source == "mrna")
    assert flipped > 50


def test_what_is_printed(folder, rows, capsys):
    picture = folder / "mixture.png"
    words = ["preview", "--config", str(folder / "run.toml"), "--rows", "6", "--first", "2"]
    assert main([*words, "--plot", str(picture)]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    lines = first.splitlines()
    assert len(lines) == 7 and lines[1].split()[0] == "2"
    for i, line in enumerate(lines[1:], start=2):
        sample = rows.order[i]
        piece = rows.pieces(sample)[0]
        letters = piece.letters.tobytes().decode()
        assert sample.source in line and letters[:12] in line and letters[-12:] in line
        record = read_source(folder / "corpus", sample.source, "train").to_pylist()[piece.record]
        assert f"{record['record_id']}:{record['start'] + 1}-{record['end']}" in line
    assert second.splitlines()[1].split()[:2] == ["first", "eukaryote"]
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_the_realised_mixture(folder, rows):
    """Counted sample by sample."""
    mixture = mixture_of(rows, load_config(TrainConfig, folder / "run.toml"))
    counted = {}
    for i in range(len(rows)):
        sample = rows.order[i]
        name = ("first", "second")[sample.stage]
        counted[name, sample.source] = counted.get((name, sample.source), 0) + 1
    assert {(line["stage"], line["source"]): line["rows"] for line in mixture} == counted
    for line in mixture:
        until = [k for k in counted if k[1] == line["source"] and k[0] <= line["stage"]]
        size = rows.sources[line["source"]].packing.num_rows
        assert line["epochs"] == sum(counted[k] for k in until) / size
        assert line["tokens"] == line["rows"] * 128
    json.dumps(mixture)


def test_renaming_the_corpus_changes_no_row(folder, tmp_path):
    text = (folder / "run.toml").read_text()
    (folder / "corpus").rename(folder / "moved")
    try:
        (tmp_path / "run.toml").write_text(text.replace("/corpus", "/moved"))
        moved = open_rows(load_config(TrainConfig, tmp_path / "run.toml"))
        again = [moved[i].input_ids.tolist() for i in range(20)]
    finally:
        (folder / "moved").rename(folder / "corpus")
    here = open_rows(load_config(TrainConfig, folder / "run.toml"))
    assert again == [here[i].input_ids.tolist() for i in range(20)]
