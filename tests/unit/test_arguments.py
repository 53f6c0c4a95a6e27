"""A wrong type passed to the Python interface: one line that says what to pass."""

from pathlib import Path

import pytest

import carbon
from carbon.errors import UserError
from carbon.finetune.config import MethodConfig
from tests.helpers.finetune import BINARY, base_folder, finetuned_of

NOT_LISTS = ["ATGGCC", b"ATGGCC", Path("genome.fa"), 7, None]
NOT_ITEMS = [("a", "ATGGCC"), b"ATGGCC", Path("genome.fa"), 7, None, ["A", "C"]]


@pytest.fixture(scope="module")
def takers(model, network, tmp_path_factory):
    finetuned, _ = finetuned_of(
        base_folder(tmp_path_factory.mktemp("arguments"), network),
        BINARY,
        MethodConfig(name="full"),
    )
    return {
        "score": lambda given: list(model.score(given)),
        "embed": lambda given: list(model.embed(given)),
        "generate": lambda given: model.generate(given, 6),
        "predict": lambda given: list(finetuned.predict(given)),
    }


NAMES = ("score", "embed", "generate", "predict")


def refused(call, match):
    """Raise unless a call is a TypeError of one line that says what to pass."""
    with pytest.raises(TypeError, match=match) as error:
        call()
    text = str(error.value)
    assert "\n" not in text
    assert "pass" in text or "read a file first" in text or "write" in text


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_a_list_of_sequences_and_an_item_that_is_not_one(takers, name):
    for given in NOT_LISTS:
        refused(lambda given=given: takers[name](given), "^(sequences|prompts): a ")
    for item in NOT_ITEMS:
        refused(lambda item=item: takers[name](["ACGTAC", item]), r"item 2: a \w+ is not a str;")


@pytest.mark.parametrize("name", ["score", "embed", "predict"])
def test_a_file_name_as_text_is_not_read_as_unknown_bases(takers, name):
    with pytest.raises(UserError, match=r"item 1: '\.' .* read a file first"):
        takers[name](["data/genome.fa"])


@pytest.mark.parametrize("name", NAMES)
def test_generators_and_tuples_of_strings_are_lists(takers, name):
    assert len(takers[name](s for s in ("ACGTAC", "acgtnn"))) == 2
    assert len(takers[name](("ACGTAC", "acgtnn"))) == 2


def test_tags_may_be_any_iterable_and_are_used(model):
    tag = model.model.vocabulary.tags[0]
    for scored in (
        lambda tags: next(model.score(["ACGTAC"], tags=tags)).log_likelihood,
        lambda tags: next(model.embed(["ACGTAC"], tags=tags)).tolist(),
    ):
        assert scored(iter([tag])) == scored([tag]) != scored([])
    assert model.scan_method(tags=iter([tag])).tags == (tag,)
    assert model.variant_method(tags=iter([tag])).tags == (tag,)


def test_a_wrong_list_is_refused_before_anything_is_computed(model):
    for lazy in (model.score, model.embed):
        with pytest.raises(TypeError):
            lazy("ATGGCC")


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("tags", lambda m: m.score(["ACGT"], tags="<fungi_species>")),
        ("tags", lambda m: m.generate(["ACGT"], 6, tags="<fungi_species>")),
        ("tags", lambda m: m.variant_method(tags="<fungi_species>")),
        ("offsets", lambda m: m.variant_method(offsets=0)),
        ("offsets", lambda m: m.scan_method(offsets="05")),
        ("forbid", lambda m: carbon.Constraints(forbid="GAATTC")),
        ("require", lambda m: carbon.Constraints(require="GAATTC")),
        ("functions", lambda m: carbon.design.run(m, "python:MODULE:FUNCTION", length_bp=60)),
        ("prompt", lambda m: m.stream(["ACGT"], 6)),
        ("context", lambda m: m.next_token(["ACGT"])),
        ("left", lambda m: m.infill(None, "ACGT", 6)),
    ],
)
def test_other_arguments(model, name, call):
    refused(lambda: call(model), f"^{name}: a ")


class TestVariants:
    @pytest.fixture
    def reference(self, tmp_path):
        (tmp_path / "g.fa").write_text(">c\n" + "ACGTTGCA" * 20 + "\n")
        with carbon.Reference(tmp_path / "g.fa") as opened:
            yield opened

    def test_text_is_not_a_variant_or_an_interval(self, model, reference):
        for given in ("c:10 A>T", carbon.Variant("c", 0, "A", "T")):
            with pytest.raises(TypeError, match=r"^variants: a "):
                model.score_variants(reference, given)
        with pytest.raises(TypeError, match="variants, item 1: a str is not a Variant"):
            list(model.score_variants(reference, ["c:10 A>T"]))
        with pytest.raises(TypeError, match="interval: a str"):
            model.scan(reference, "c:1-60")
        with pytest.raises(TypeError, match="contigs"):  # by letters "VI" would be V and I
            model.background(reference, contigs="VI")

    def test_a_path_is_not_an_open_reference(self, model):
        variant = carbon.Variant("c", 0, "A", "T")
        for call in (
            lambda path: model.score_variants(path, [variant]),
            lambda path: model.compare_alleles(path, variant, model.variant_method()),
            lambda path: model.scan(path, carbon.Interval("c", 0, 60)),
            lambda path: model.background(path),
        ):
            with pytest.raises(TypeError, match=r"carbon\.Reference\(path\)"):
                call("genome.fa")
