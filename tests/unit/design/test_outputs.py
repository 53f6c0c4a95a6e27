"""What a design run writes: every constraint, GenBank with features, and a page."""

import json
import re

import pyarrow.parquet as pq
import pytest
from Bio import SeqIO
from Bio.Restriction import BsaI, EcoRI
from Bio.Seq import Seq

import carbon
from carbon.cli import main
from carbon.design.distances import edits_between, far_apart
from carbon.design.functions import parse_function
from carbon.design.measures import MEASURES, Measured, measured, occurrences
from carbon.design.rules import Rules
from carbon.errors import UserError
from carbon.genome import GENETIC_CODE
from carbon.inference.options import Constraints
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta

PROTEIN = "MKAEFGLLKDRTSV"
RULES = {
    "sites": ("ecori", "BSAI"),
    "forbid": ("TATAAA",),
    "most_run_bp": 4,
    "gc": (0.2, 0.8),
    "no_stop_frame": 0,
}


def gc(sequences):
    return [(s.count("G") + s.count("C")) / len(s) for s in sequences]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("outputs")
    save_model(network, folder / "model")
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    return carbon.load(folder / "model")


def slow_longest_run(bases):
    return max(len(run.group()) for run in re.finditer(r"(.)\1*", bases))


def test_every_constraint_is_reported_as_biopython_measures_it(folder, loaded):
    outputs = [folder / "o.parquet", folder / "o.gb", folder / "o.html"]
    designs = carbon.design.run(
        loaded, [gc], protein=PROTEIN, calls=40, batch=20, num_designs=6, output=outputs, **RULES
    )
    rows = pq.read_table(outputs[0]).to_pylist()
    assert len(rows) == len(designs) == 6
    for row, design in zip(rows, designs, strict=True):
        bases = Seq(row["bases"])
        assert row["gc_content"] == (bases.count("G") + bases.count("C")) / len(bases)
        assert row["num_sites"] == len(EcoRI.search(bases)) + len(BsaI.search(bases)) == 0
        assert row["num_forbidden"] == bases.count_overlap("TATAAA") == 0
        assert row["longest_run_bp"] == slow_longest_run(row["bases"]) <= 4
        assert row["translation"] == str(bases.translate()) == PROTEIN
        assert row["num_stops"] == str(bases.translate()).count("*") == 0
        assert {name: row[name] for name in design.constraints} == design.constraints
        assert not {"lowest_fold_kcal", "required_at", "edits_to_others"} & set(row)
    records = list(SeqIO.parse(outputs[1], "genbank"))
    assert [(each.id, str(each.seq)) for each in records] == [(r["name"], r["bases"]) for r in rows]
    for record in records:
        source, cds = record.features
        assert (source.type, cds.type) == ("source", "CDS")
        assert (
            cds.qualifiers["translation"] == [PROTEIN] == [str(cds.extract(record.seq).translate())]
        )
        comment = record.annotations["comment"]
        assert "num_sites: 0" in comment and "weights_file_sha256:" in comment
    page = outputs[2].read_text()
    for row in rows:
        assert row["name"] in page
    letters = re.sub(r"<[^>]*>", "", page.partition("<h2>Bases</h2>")[2])
    assert all(row["bases"] in letters for row in rows) and "num_sites" in page


@pytest.mark.filterwarnings("error::Bio.BiopythonWarning")  # of a word without a place to break
def test_required_motifs_are_features_once(folder, loaded):
    """Lists are as good as tuples, and a path of records as good as its text."""
    records = write_fasta(folder / f"{'records' * 12}.fa", {"r": random_bases(60, 1)})
    outputs = [folder / name for name in ("required.gb", "required.fa", "required.json")]
    carbon.design.run(
        loaded, [gc], length_bp=40, require=["GATNC", "CGCG", "CGCG"], calls=12, batch=6,
        num_designs=3, output=outputs, records=records,
    )  # fmt: skip
    for record in SeqIO.parse(outputs[0], "genbank"):
        places = [
            (feature.qualifiers["note"][0].removeprefix("required: "), int(feature.location.start))
            for feature in record.features[1:]
        ]
        codes = {"GATNC": "(?=GAT.C)", "CGCG": "(?=CGCG)"}
        assert places == [
            (motif, match.start())
            for motif, code in codes.items()
            for match in re.finditer(code, str(record.seq))
        ]
        assert {motif for motif, _ in places} == set(codes)
    header = outputs[1].read_text().partition("\n")[0]
    assert f"records={records}" in header and f"model={loaded.source}" in header
    assert json.loads(outputs[2].read_text())["settings"]["records"] == str(records)


def test_what_a_run_without_a_folder_cannot_do(folder, loaded):
    unnamed = carbon.Model(loaded.model)
    with pytest.raises(UserError, match="not loaded from a folder"):
        carbon.design.run(unnamed, [gc], length_bp=9, output=folder / "unnamed.fa")
    with pytest.raises(UserError, match="resume: give the output"):
        carbon.design.run(loaded, [gc], length_bp=9, resume=True)
    with pytest.raises(TypeError, match="sites: a single str"):
        carbon.design.run(loaded, [gc], length_bp=9, sites="GATC")


def test_sites_are_those_of_biopython():
    bases = random_bases(20_000, 3)
    counts = [len(enzyme.search(Seq(bases))) for enzyme in (EcoRI, BsaI)]
    (row,) = measured([bases], "", Rules(sites=["EcoRI", "BsaI"]))
    assert row["num_sites"] == sum(counts) and min(counts) > 1


@pytest.mark.parametrize(
    ("bases", "prompt", "rules", "expected"),
    [
        ("GAATTCGAGACC", "", Rules(sites=("EcoRI", "BsaI")), {"num_sites": 2}),  # one palindrome
        ("AAACC", "TTA", Rules(constraints=Constraints(forbid=("TTAA", "AC"))),
         {"num_forbidden": 2}),
        ("AACCC", "TTAACC", Rules(constraints=Constraints(forbid=("TTAA",))),
         {"num_forbidden": 0}),
        ("GATCGATC", "", Rules(constraints=Constraints(require=("GATN",))),
         {"required_at": "GATN:1,GATN:5"}),
        ("GCGCATAT", "", Rules(constraints=Constraints(gc=(0, 1), gc_window_bp=4)),
         {"lowest_window_gc": 0.0, "highest_window_gc": 1.0, "gc_content": 0.5}),
        ("AATAAC", "T", Rules(constraints=Constraints(no_stop_frame=0)), {"num_stops": 2}),
        ("ACGGATTTTCCGT", "", Rules(), {"longest_repeat_bp": 5, "longest_run_bp": 4}),
    ],
)  # fmt: skip
def test_measures(bases, prompt, rules, expected):
    (row,) = measured([bases], prompt, rules)
    assert {name: row[name] for name in expected} == expected


def test_overlapping_occurrences_of_codes():
    assert occurrences("NR", "AGAC") == [0, 1]
    assert MEASURES["gc_content"].value(Measured("GGAA", "", Rules())) == 0.5


@pytest.mark.parametrize(("strategy", "least_edits"), [("beam", 9), ("rejection", 12)])
def test_designs_are_far_apart(loaded, strategy, least_edits):
    options = {"length_bp": 24, "calls": 120, "batch": 20, "num_designs": 5, "strategy": strategy}
    if strategy == "rejection":
        options |= {"goals": [0.5], "within": 0.2}
    near = carbon.design.run(loaded, [gc], **options)
    apart = carbon.design.run(loaded, [gc], least_edits=least_edits, **options)
    assert len(apart) == 5
    for n, design in enumerate(apart):
        distances = [edits_between(design.bases, o.bases) for m, o in enumerate(apart) if m != n]
        assert design.constraints["edits_to_others"] == min(distances) >= least_edits
    first = min(edits_between(a.bases, b.bases) for a in near for b in near if a is not b)
    assert first < least_edits
    assert strategy == "rejection" or apart[0].bases == near[0].bases


def test_the_order_of_preference_decides():
    assert far_apart(["AAAA", "AAAC", "CCCC", "CCCA"], 2, 9) == [0, 2]
    assert far_apart(["AAAA", "AAAC", "CCCC"], 0, 2) == [0, 1]
    with pytest.raises(UserError, match="distance of -1 edits"):
        Rules(least_edits=-1)


TABLE = "amino_acid,codon,relative_frequency\n" + "".join(
    f"{aa},{codon},{1 + n}\n" for n, (codon, aa) in enumerate(sorted(GENETIC_CODE.items()))
)


def test_codons_of_a_host_and_several_goals_after_one_flag(folder, functions, capsys):
    (functions / "host.csv").write_text(TABLE)
    words = ["design", "--model", str(folder / "model"), "--protein", PROTEIN, "--calls", "20"]
    words += ["--function", "codons:host.csv", "python:some_functions:gc"]
    words += ["--goal", "maximize", "-1.5", "-n", "3", "--output", "o.json", "o.fa"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == ["o.json", "o.fa"]
    content = json.loads((functions / "o.json").read_text())
    assert content["settings"]["goals"] == "maximize,-1.5"
    assert all(0 < row["codons"] <= 1 for row in content["rows"])


def test_a_host_that_is_not_there():
    with pytest.raises(UserError, match="no such file"):
        parse_function("codons:host.fa:absent.gff")
