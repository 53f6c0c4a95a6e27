"""Generate and Read: what they answer by the library and by hand, and what they draw of it."""

import numpy as np
import pytest

from carbon.genome import Interval, reverse_complement
from carbon.inference import Constraints, join_chunks
from demo.panels.generate import Generate
from demo.panels.read import Read
from tests.helpers.demo import GENE, answered, make_lab, values_of, visited, write_genome
from tests.helpers.files import write_fasta


@pytest.fixture(scope="module")
def lab(model, tmp_path_factory):
    return make_lab(tmp_path_factory.mktemp("lab"), model)


@pytest.fixture(scope="module")
def generate(lab):
    return Generate(lab)


@pytest.fixture(scope="module")
def read(lab):
    return Read(lab)


def test_constraints_and_tags_reach_the_model(generate, lab):
    tags = generate.fields[2].choices[1], generate.fields[3].choices[1]
    given = {"species": tags[0], "gene": tags[1], "forbid": "GC", "length_bp": 30}
    expected = lab.model.generate(
        ["ATGGCCAAG"], 30, tags=tags, constraints=Constraints(forbid=("GC",)), top_p=1.0
    )
    bases = answered(generate, given)["bases"]
    assert [bases] == expected and "GC" not in bases
    assert answered(generate, {"length_bp": 30})["bases"] != bases


def test_probabilities_are_those_of_the_bases(generate):
    result = answered(generate, {"length_bp": 30})
    for base, p, four in zip(
        result["bases"], result["probabilities"], result["alternatives"], strict=True
    ):
        assert p == four["ATCG".index(base)] and sum(four) == pytest.approx(1, abs=1e-5)


def test_open_frames_are_arrows_and_proteins(generate):
    """A frame of 20 codons on the reverse strand, from base 64 back to base 2, with its stop."""
    coding = "ATG" + "GCC" * 19 + "TAA"
    prompt = f"C{reverse_complement(coding)}C"
    values = values_of(generate, prompt=prompt, length_bp=1)
    result = answered(generate, {"prompt": prompt, "length_bp": 1}) | {"bases": "C"}
    shown = generate.show(values, result)
    (arrow,) = [t for t in shown["tracks"]["data"] if t.get("mode") == "lines+markers"]
    assert (arrow["x"], arrow["y"]) == ([64, 2], [4, 4])
    assert f"<td>M{'A' * 19}</td>" in shown["frames"] and "2 to 64 on -" in shown["frames"]


def test_a_gene_is_read_with_its_flanks(read, lab):
    result = answered(read, {"place": GENE})
    assert result["region"] == "c1:1-1100"  # the gene is 101-1000
    gene = Interval("c1", 0, 1100)
    scanned = join_chunks(lab.model.scan(lab.genome.reference, gene, offsets=[0]))
    assert result["entropy_nats"] == pytest.approx(scanned.entropy_nats.tolist())
    assert result["nats_per_base"] == pytest.approx(-float(scanned.log_p_ref.mean()), abs=1e-6)


def test_unknown_bases_have_no_probability(read, tmp_path):
    fasta = write_fasta(tmp_path / "n.fa", {"z": "ACGTACNNNNACGTACGTAC", "n": "N" * 20})
    _, result, shown = visited(read, place="z:1-20", genome=[str(fasta)])
    assert [v is None for v in result["log_p_ref"]] == [b == "N" for b in result["bases"]]
    assert "7%09N%09.%0A" in shown["tsv"] and np.isfinite(result["nats_per_base"])
    _, result, shown = visited(read, place="n:1-20", genome=[str(fasta)])
    assert result["nats_per_base"] is None and "nan" not in shown["facts"]


def test_far_out_an_area_of_means(read):
    result = answered(read, {"place": "c1:1-1400"})
    (area, *_) = read.show(values_of(read, place="c1:1-1400"), result)["track"]["data"]
    p = np.exp(np.array(result["log_p_ref"]))
    # 1,400 bases on 600 points at most: three bases each, the last two.
    assert area["x"][:2] == [2, 5] and area["name"] == "probability, mean of 3 bases"
    assert area["y"][0] == pytest.approx(p[:3].mean()) and len(area["y"]) == 467
    assert area["y"][-1] == pytest.approx(p[-2:].mean())


def test_near_by_letters_bases_and_amino_acids(read):
    given = {"place": "c1:1-1400", "start_bp": 110, "width_bp": 30}
    result = answered(read, given)
    traces = {t["name"]: t for t in read.show(values_of(read, **given), result)["track"]["data"]
              if "name" in t}  # fmt: skip
    assert set("ACGT") < set(traces)
    bases = dict(zip(traces["the bases"]["x"], traces["the bases"]["text"], strict=True))
    assert "".join(bases[place] for place in range(111, 120)) == "ATGTACCAA"
    acids = traces["amino acids"]
    found = list(zip(acids["x"], acids["text"], acids["hovertext"], strict=True))[:3]
    assert found == [(112, "M", "ABC 1"), (115, "Y", "ABC 2"), (118, "Q", "ABC 3")]
    # What stands at a base is as high as its information.
    p = np.exp(np.array(result["log_probabilities"]))
    p /= p.sum(axis=1, keepdims=True)
    bits = 2 + (p * np.log2(p)).sum(axis=1)
    xy = [(x, y) for base in "ACGT" for x, y in zip(traces[base]["x"], traces[base]["y"],
          strict=True) if x is not None]  # fmt: skip
    tallest = max(y for x, y in xy if 110.5 <= x < 111.5)
    assert tallest == pytest.approx(bits[110], abs=0.06)


def test_a_zoom_is_held_by_the_link(read):
    (pick,) = read.picks()
    values = values_of(read, place="c1:101-700")
    assert not pick.asks
    assert pick.set({"range": [150.2, 210.4]}, values) == {"start_bp": 50, "width_bp": 60}
    assert pick.set({"range": [None, None]}, values) == {"start_bp": 0, "width_bp": 0}
    assert pick.set({"range": [-20, 5000]}, values) == {"start_bp": 0, "width_bp": 600}


@pytest.mark.parametrize(
    "text", ["ACGUACGU" * 20, ">z words\n" + "ACGTACGT\n" * 20, "1 acgtacgt\n9 acgtacgt"]
)
def test_a_pasted_sequence_is_read(read, text):
    result = answered(read, {"pasted": text})
    assert set(result["bases"].upper()) == set("ACGT")
    assert "pasted.fa" in read.command(values_of(read, pasted=text))


def test_the_genes_of_an_upload_are_listed(read, tmp_path):
    fasta, gff = write_genome(tmp_path, "own", "-")
    _, result, shown = visited(read, genome=[str(fasta), str(gff)])
    assert result["region"] == "own:301-1400"  # its gene ABC with flanks
    assert ">ABC</a>" in shown["tsv"]


def test_the_grid_stands_where_tokens_begin(read):
    values = values_of(read, place="c1:101-200", offsets=["2"], grid=True, start_bp=7, width_bp=50)
    result = answered(read, {"place": "c1:101-200", "offsets": ["2"]})
    layout = read.show(values, result)["track"]["layout"]
    first = 108  # the 8th base of the region
    assert layout["xaxis"]["range"] == [first - 0.5, first + 49.5]
    # At offset 2 tokens begin at 0-based positions 2, 8, 14 ...; a line stands left of the base.
    expected = [at + 0.5 for at in range(first - 1, first + 49) if at % 6 == 2]
    assert [shape["x0"] for shape in layout["shapes"]] == expected
