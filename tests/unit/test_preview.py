"""What `carbon train preview` prints, and rows traced back to the assembly they come from."""

import itertools
import json
import shutil
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from carbon.corpus import read_source
from carbon.genome import Interval, Reference, reverse_complement
from tests.helpers.files import random_bases
from tests.helpers.runs import corpus_of_three_sources
from train.__main__ import main
from train.config import TrainConfig
from train.data import batches, open_rows
from train.distributed.context import ContextShard
from train.planning.mesh import Mesh
from train.planning.preview import mixture_of
from train.schedule import Schedule

RECIPE = """
output = "{folder}/run"
seed = 3
[model]
preset = "tiny"
[data]
corpus = "{folder}/corpus"
microbatch_tokens = 512
[[phases]]
name = "first"
objective = "ce"
tokens = 40_000
mixture = {{ eukaryote = 0.75, mrna = 0.25 }}
context_tokens = 128
batch_rows = 8
learning_rate = 1e-3
schedule = "constant"
[[phases]]
name = "second"
objective = "fns"
tokens = 20_000
mixture = {{ eukaryote = 0.5, mrna = 0.25, promoter = 0.25 }}
context_tokens = 256
batch_rows = 4
length_warmup = [{{ context_tokens = 64, steps = 5 }}]
learning_rate = 1e-3
schedule = "constant"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preview") / "own"
    shutil.copytree(corpus_of_three_sources(), folder)
    (folder / "run.toml").write_text(RECIPE.format(folder=folder))
    return folder


@pytest.fixture(scope="module")
def rows(folder):
    config = TrainConfig.load(folder / "run.toml")
    return open_rows(config, Schedule(config))


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
            for piece in rows.segments(sample):
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
        piece = rows.segments(sample)[0]
        letters = piece.letters.tobytes().decode()
        assert sample.source in line and letters[:12] in line and letters[-12:] in line
        record = read_source(folder / "corpus", sample.source, "train").to_pylist()[piece.record]
        assert f"{record['record_id']}:{record['start'] + 1}-{record['end']}" in line
    assert second.splitlines()[1].split()[:3] == ["first", "128", "eukaryote"]
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_the_realised_mixture(folder, rows):
    """Counted sample by sample."""
    schedule = Schedule(TrainConfig.load(folder / "run.toml"))
    spans = [(s.phase.name, s.context_tokens) for s in schedule.spans]
    assert spans == [("first", 128), ("second", 64), ("second", 256)]
    counted, read = {}, {}
    for i in range(len(rows)):
        sample = rows.order[i]
        assert len(rows[i].input_ids) == sample.row_tokens == spans[sample.span][1]
        counted[*spans[sample.span], sample.source] = (
            counted.get((*spans[sample.span], sample.source), 0) + 1
        )
        stream = (sample.source, sample.row_tokens)
        read[stream] = read.get(stream, 0) + 1
    mixture = mixture_of(rows, schedule)
    found = {(m["phase"], m["context_tokens"], m["source"]): m["rows"] for m in mixture}
    assert found == counted
    for line in mixture:
        name, row_tokens = line["source"], line["context_tokens"]
        size = rows.sources[name].packings[row_tokens].num_rows
        assert line["epochs"] == read[name, row_tokens] / size  # no length comes twice here
        packing = rows.sources[name].packings[row_tokens]
        filled = (packing.num_kmers.sum() + len(packing.record)) / (size * row_tokens)
        assert line["padding"] == pytest.approx(1 - filled)
        assert line["tokens"] == round(line["rows"] * row_tokens * filled)
    json.dumps(mixture)


@pytest.mark.parametrize(
    ("readers", "workers"), [(1, 0), (4, 0), pytest.param(2, 2, marks=pytest.mark.nightly)]
)
def test_batches_are_the_same_rows_for_any_readers_workers_and_beginning(
    folder, rows, readers, workers
):
    """Batch k is what the schedule says, in parts or whole, from whatever step one begins."""
    words = [f"data.workers={workers}"]
    config = TrainConfig.load(folder / "run.toml", words)
    schedule = Schedule(config)
    steps = range(schedule.total_steps)
    expected = {
        k: [rows[i].input_ids.tolist() for i in schedule.at(k).rows_of_step(k)] for k in steps
    }
    for first in (0, 1, 39, 41, 44, 45, 58) if not workers else (43,):
        of_readers = []
        for reader in range(readers):
            given = {"device": torch.device("cpu"), "share": ContextShard()}
            one = SimpleNamespace(rank=reader, shape=Mesh(shard=readers), **given)
            read = batches(rows, config, schedule, one, range(first, schedule.total_steps))
            taken = itertools.islice(read, 4)
            of_readers.append([torch.cat([b.input_ids for b in step]).tolist() for step in taken])
        for number, parts in enumerate(zip(*of_readers, strict=True)):
            found = [row for part in parts for row in part]
            assert found == expected[first + number], (first, number)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_shares_of_rows_are_read_ahead_as_they_are(folder, rows, workers):
    """A process has its places of every row, whoever reads them for it."""
    config = TrainConfig.load(folder / "run.toml", [f"data.workers={workers}"])
    schedule, share = Schedule(config), ContextShard(1, 2)
    one = SimpleNamespace(rank=0, shape=Mesh(), device=torch.device("cpu"), share=share)
    steps = range(43, 45)
    for k, step in zip(steps, batches(rows, config, schedule, one, steps), strict=True):
        whole = [rows[i] for i in schedule.at(k).rows_of_step(k)]
        places = share.places(len(whole[0].input_ids))
        for name in ("input_ids", "position_ids", "targets"):
            found = torch.cat([getattr(batch, name) for batch in step]).tolist()
            assert found == [getattr(row, name)[places].tolist() for row in whole]


def test_the_released_layout(folder, tmp_path, capsys):
    """Columns and names as the released corpus has them, no manifest."""
    letters = {name: random_bases(30_000, i) for i, name in enumerate(("dna", "rna"))}
    columns = {"sequence": [letters["dna"]], "gene_type": ["<cds>"], "species_type": ["<fng>"]}
    more = {"strand": ["<->"], "record_id": ["NC_1.1"], "start": [5], "end": [30_005]}
    for name, table in (
        ("eukaryote_generator", columns | more),
        ("mrna_evo2", {"text": [letters["rna"]]}),
    ):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(table), tmp_path / name / "train-00000-of-00001.parquet")
    mixture = "mixture={eukaryote_generator=0.75,mrna_evo2=0.25}"
    changes = [f"data.corpus={tmp_path}", f"phases.0.{mixture}", f"phases.1.{mixture}"]
    words = ["preview", "--config", f"{folder}/run.toml", "--first", "300"]
    assert main([*words, *(w for c in changes for w in ("--set", c))]) == 0
    lines = capsys.readouterr().out.split("\n\n")[0].splitlines()[1:]
    assert {"eukaryote_generator", "mrna_evo2"} == {line.split()[3] for line in lines}
    dna = [line.split() for line in lines if "eukaryote_generator" in line]
    assert {line[7] for line in dna} == {"+", "-"}
    config = TrainConfig.load(folder / "run.toml", changes)
    rows = open_rows(config, Schedule(config))
    strands = set()
    for i in range(len(rows)):
        sample = rows.order[i]
        for piece in rows.segments(sample):
            found = piece.letters.tobytes().decode()
            forward = letters["dna" if "euk" in sample.source else "rna"]
            reverse = rows.reading(sample).reverse
            assert found in (reverse_complement(forward) if reverse else forward)
            strands.add((sample.source, reverse))
    assert ("mrna_evo2", True) not in strands and ("eukaryote_generator", True) in strands
