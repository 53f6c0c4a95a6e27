"""Rules, each against the plainest check."""

import random

import pytest
from Bio import Restriction

from carbon.design.rules import (
    RuleChecker,
    Rules,
    both_strands,
    has_repeat,
    least_fold_kcal,
    motifs_of,
)
from carbon.errors import UserError
from carbon.genome import IUPAC_DNA, reverse_complement
from carbon.inference.options import Constraints
from tests.helpers.files import random_bases


def test_all_enzymes_of_rebase_in_any_case():
    for enzyme in Restriction.AllEnzymes:
        sites = tuple(enzyme.site.split("|"))  # HpyUM037X has two
        is_iupac = not set(str(enzyme).upper()) - set(IUPAC_DNA)  # DrdV
        for name in (str(enzyme), *([] if is_iupac else [str(enzyme).lower()])):
            assert motifs_of(name) == sites
    assert motifs_of("ECORI") == ("GAATTC",) and motifs_of("DRDV") == ("DRDV",)
    assert both_strands(("gaattc", "BsaI")) == ("GAATTC", "GGTCTC", "GAGACC")
    with pytest.raises(UserError, match=r"site 'EcoR1': .* did you mean .*EcoRI"):
        both_strands(("EcoR1",))
    with pytest.raises(UserError, match="site ''"):
        both_strands(("",))


@pytest.mark.parametrize("length_bp", [5, 8])
def test_repeats(length_bp):
    alphabet = random.Random(1)
    seen = set()
    for _ in range(300):
        bases = "".join(alphabet.choices("ACGT", k=alphabet.randint(0, 60)))
        pieces = [bases[n : n + length_bp] for n in range(len(bases) - length_bp + 1)]
        either = [min(piece, reverse_complement(piece)) for piece in pieces]
        truth = len(set(either)) < len(either)
        assert has_repeat(bases, length_bp) == truth
        seen.add(truth)
    assert seen == {True, False}


def test_a_hairpin_is_found_wherever_it_is():
    stem = "GGCGCGATCCGG"
    hairpin = stem + "TTTT" + reverse_complement(stem)
    plain = "AC" * 60
    assert least_fold_kcal(plain) > -1
    for at in (0, 13, 60, 92):
        assert least_fold_kcal(plain[:at] + hairpin + plain[at:]) < -12
    checker = RuleChecker(Rules(least_kcal=-5), "", 148)
    assert checker.accepts((plain * 2)[:148]) and not checker.accepts(plain + hairpin)


@pytest.mark.parametrize(
    ("rules", "good", "bad"),
    [
        (Rules(sites=("BsaI",)), "ACGTACGTAC", "ACGAGACCAC"),
        (Rules(most_run_bp=3), "AAACCCGGGT", "AAACCCCGGT"),
        (Rules(most_repeat_bp=5), "ACGTTCATGG", "ACGTACGTAC"),
        (Rules(constraints=Constraints(require=("GATC",))), "AAGATCAAAA", "AAGATGAAAA"),
    ],
)
def test_what_keeps_to_rules(rules, good, bad):
    checker = RuleChecker(rules, "", 10)
    assert checker.accepts(good) and not checker.accepts(bad)


def test_rules_that_make_no_sense():
    for wrong in ({"most_run_bp": 0}, {"most_repeat_bp": 4}, {"least_kcal": 1.0}):
        with pytest.raises(UserError):
            Rules(**wrong)
    with pytest.raises(UserError, match="can keep to"):
        RuleChecker(Rules(most_run_bp=2, constraints=Constraints(require=("AAA",))), "", 30)
    assert RuleChecker(Rules(), "", 30).accepts(random_bases(30))
