"""Embeddings of both alleles against the hidden states of stock transformers, and their files."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from carbon.cli import main
from carbon.errors import UserError
from carbon.genome import Reference, Variant, reverse_complement
from carbon.inference.variants.embeddings import EMBEDDING_PROTOCOL
from carbon.model import save_model
from carbon.tokenizer import encode
from tests.helpers.files import random_bases, write_fasta, write_vcf

CONTIG = random_bases(300, 7)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "r.fa"
    return Reference(write_fasta(path, {"c": CONTIG}))


def slow_mean(network, bases: str) -> np.ndarray:
    """Return the mean over known bases of the last normed states, read alone by stock code."""
    ids = torch.from_numpy(encode(bases).ids)[None]
    with torch.inference_mode():
        states = network(ids, output_hidden_states=True).hidden_states[-1][0].double().numpy()
    return np.mean([states[1 + i // 6] for i in range(len(bases))], axis=0)


def embedded(model, reference, variant, **options):
    (vectors,) = model.embed_variants(reference, [variant], window_bp=60, **options)
    return vectors


def windows_of(position: int, ref: str, alt: str) -> list[tuple[str, str]]:
    """Return the windows of 60 bp with REF and ALT: forward, and reverse complemented.

    30 bp before the variant and 30 from it on; the reverse strand has 29 and 31, so that the
    windows of an SNV are one. ALT leaves out its additional length modulo six at the start.
    """
    skip = (len(alt) - len(ref)) % 6
    end = position + len(ref)
    pairs = []
    for before, after, alleles in (
        (CONTIG[position - 30 : position], CONTIG[end:], (ref, alt)),
        (
            reverse_complement(CONTIG[end : end + 29]),
            reverse_complement(CONTIG[:position]),
            tuple(map(reverse_complement, (ref, alt))),
        ),
    ):
        from_variant_bp = 60 - len(before)
        texts = [(allele + after)[:from_variant_bp] for allele in alleles]
        pairs.append((before + texts[0], before[skip:] + texts[1]))
    return pairs


SNV = (150, CONTIG[150], "ACGT"["TACG".index(CONTIG[150])])
INSERTION = (149, "C", "CGATTACA")
DELETION = (149, "CTAAT", "C")


def as_variant(position: int, ref: str, alt: str) -> Variant:
    return Variant("c", position, ref, alt)


@pytest.mark.parametrize("case", [SNV, INSERTION, DELETION])
def test_each_vector_is_the_mean_over_the_window_and_both_strands(model, network, reference, case):
    vectors = embedded(model, reference, as_variant(*case))
    pairs = windows_of(*case)
    for allele, vector in enumerate((vectors.ref, vectors.alt)):
        expected = np.mean([slow_mean(network, pair[allele]) for pair in pairs], axis=0)
        assert vector.dtype == np.float32
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    for strands, pair in zip(("forward", "reverse"), pairs, strict=True):
        alone = embedded(model, reference, as_variant(*case), strands=strands)
        np.testing.assert_allclose(alone.alt, slow_mean(network, pair[1]), atol=1e-5)


def test_company_changes_no_bit(model, reference):
    variants = [as_variant(*case) for case in (SNV, INSERTION, DELETION)]
    together = list(model.embed_variants(reference, variants, window_bp=60))
    for variant, vectors in zip(variants, together, strict=True):
        alone = embedded(model, reference, variant)
        assert alone.ref.tobytes() == vectors.ref.tobytes()
        assert alone.alt.tobytes() == vectors.alt.tobytes()


def test_variants_without_a_window_have_the_reason_of_their_score(model, reference):
    variants = [
        Variant("c", 40, CONTIG[40], "<DEL>"),
        Variant("c", 40, CONTIG[40], CONTIG[40]),
        Variant("c", 40, CONTIG[40:100], CONTIG[40]),  # 59 deleted, half a window has 30
        Variant("c", 299, CONTIG[299], CONTIG[299] + "ACG"),
    ]
    vectors = list(model.embed_variants(reference, variants, window_bp=60))
    options = {"protocol": EMBEDDING_PROTOCOL, "window_bp": 60}
    scores = list(model.score_variants(reference, variants, **options))
    assert [each.reason for each in vectors] == [each.reason for each in scores]
    assert len({each.reason for each in vectors[:3]} - {None}) == 3
    assert all((each.ref is None) == (each.reason is not None) for each in vectors)


def test_an_option_that_is_not_possible_is_refused_at_once(model, reference):
    with pytest.raises(UserError, match=r"layer 3: .* give 0 to 2"):
        model.embed_variants(reference, [], layer=3)
    with pytest.raises(UserError, match="a window of 600 bp does not fit"):
        model.embed_variants(reference, [], window_bp=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("embed_vcf")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c": CONTIG})
    records = [
        f"c\t101\tv1\t{CONTIG[100]}\tN\t.\t.\t.",
        f"c\t151\tv2\t{CONTIG[150]}\t{SNV[2]}\t9\tPASS\t.",
        f"c\t201\tv3\t{CONTIG[200]}\t{CONTIG[200]}AC,<DEL>\t50\tPASS\t.",
    ]
    write_vcf(folder / "v.vcf", records)
    return folder


def run(folder, output, *more):
    words = ["embed", "--model", f"{folder}/model", "--vcf", f"{folder}/v.vcf", "--output"]
    return main([*words, str(output), "--reference", f"{folder}/r.fa", "--window", "60", *more])


def test_alleles_next_to_unknown_bases_are_reported(folder, tmp_path, capsys, model):
    """One token with an N stands for both alleles, so that both vectors are equal."""
    fasta = write_fasta(tmp_path / "n.fa", {"n": f"{CONTIG[:60]}NNNNNN{CONTIG[60:120]}"})
    snv, far = (f"n\t{n}\t.\t{CONTIG[n - 1]}\t" for n in (60, 40))
    alts = ["ACGT"["TACG".index(CONTIG[n - 1])] for n in (60, 40)]
    records = [f"{far}{alts[1]}\t.\t.\t.", f"{snv}{alts[0]}\t.\t.\t."]
    vcf = write_vcf(tmp_path / "n.vcf", records)
    more = ("--vcf", str(vcf), "--reference", str(fasta))
    assert run(folder, tmp_path / "o.npz", *more) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["alleles_masked"] == 1
    assert "1 of 2 alleles share their tokens with an unknown base" in err
    (vectors,) = model.embed_variants(
        Reference(fasta), [Variant("n", 59, CONTIG[59], alts[0])], window_bp=60
    )
    assert vectors.num_masked == 2
    assert np.array_equal(vectors.ref, vectors.alt)


@pytest.mark.parametrize("ending", ["parquet", "npz"])
def test_the_command_writes_what_the_method_gives(folder, tmp_path, capsys, model, ending):
    output = tmp_path / f"o.{ending}"
    assert run(folder, output) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["alleles"], summary["alleles_embedded"], summary["width"]) == (4, 2, 32)
    assert sum(summary["reasons"].values()) == 2 and len(summary["reasons"]) == 2
    if ending == "npz":
        rows = dict(np.load(output))
        assert np.isnan(rows["ref_embedding"][[0, 3]]).all()
    else:
        rows = pq.read_table(output).to_pydict()
        assert rows["alt_embedding"][0] is None and rows["reason"][1] is None
    assert list(rows["position"]) == [101, 151, 201, 201]
    assert list(rows["id"]) == ["v1", "v2", "v3", "v3"]
    vectors = embedded(model, Reference(folder / "r.fa"), as_variant(*SNV))
    for allele, expected in (("ref", vectors.ref), ("alt", vectors.alt)):
        found = np.asarray(rows[f"{allele}_embedding"][1], np.float32)
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("words", "positions", "left_out"),
    [(["--region", "c:140-160"], [151], {}), (["--min-qual", "10"], [201, 201], {"qual": 2})],
)
def test_filters_are_those_of_variants(folder, tmp_path, capsys, words, positions, left_out):
    assert run(folder, tmp_path / "o.npz", *words) == 0
    assert json.loads(capsys.readouterr().out)["records_left_out"] == left_out
    assert np.load(tmp_path / "o.npz")["position"].tolist() == positions
