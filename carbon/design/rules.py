"""Rules that every design satisfies; recognition sites of restriction enzymes from REBASE."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache

from carbon.errors import UserError
from carbon.genome import IUPAC_DNA, reverse_complement
from carbon.genome.kmers import canonical_kmers
from carbon.inference.checks import check_several
from carbon.inference.generate.automaton import automaton_for
from carbon.inference.options import Constraints, RuleOptions, as_tuples
from carbon.tokenizer import BASES


@cache
def enzymes() -> Mapping[str, tuple[str, ...]]:
    """Return the recognition sites of all restriction enzymes of REBASE, by name (Biopython)."""
    from Bio.Restriction import AllEnzymes  # type: ignore[attr-defined]

    named = sorted((str(each), each.site) for each in AllEnzymes)
    return {name: tuple(site.split("|")) for name, site in named}


@cache
def _enzymes_in_lower_case() -> Mapping[str, str]:
    return {name.lower(): name for name in enzymes()}


def motifs_of(site: str) -> tuple[str, ...]:
    """Return the IUPAC motifs of an enzyme, in any case, or of IUPAC letters.

    The enzyme DrdV, whose name has IUPAC letters alone, must be spelled as in REBASE.

    >>> motifs_of("ecori"), motifs_of("rgatcy")
    (('GAATTC',), ('RGATCY',))

    Raises:
        UserError: a site is neither an enzyme nor IUPAC letters.
    """
    if site in enzymes():
        return enzymes()[site]
    if site and not set(site.upper()) - set(IUPAC_DNA):
        return (site.upper(),)
    lower = _enzymes_in_lower_case()
    if name := lower.get(site.lower()):
        return enzymes()[name]
    near = [lower[each] for each in get_close_matches(site.lower(), lower, 3)]
    hint = f"; did you mean {' or '.join(near)}?" if near else ", such as EcoRI"
    raise UserError(
        f"site '{site}': give IUPAC letters of DNA, or a restriction enzyme of REBASE{hint}"
    )


def both_strands(sites: tuple[str, ...]) -> tuple[str, ...]:
    """Return the motifs of sites on both strands; a site is an enzyme or IUPAC letters.

    >>> both_strands(("EcoRI", "BsaI"))
    ('GAATTC', 'GGTCTC', 'GAGACC')

    Raises:
        UserError: a site is neither an enzyme nor IUPAC letters.
    """
    motifs = (motif for site in sites for motif in motifs_of(site))
    return tuple(
        dict.fromkeys(each for motif in motifs for each in (motif, reverse_complement(motif)))
    )


HAIRPIN_WINDOW_BP = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules(RuleOptions):
    """Rules that every design satisfies.

    A repeat, of 5 to 30 bases, may be on either strand. The distance is between designs that are
    returned, so that no two of them are alike. Free energies are those of DNA at 37
    degrees, in kcal/mol, and negative.

    Attributes:
        constraints: constraints on generation.

    Raises:
        TypeError: `sites` is a single string, whose letters would be sites.
        UserError: a value is invalid, or ViennaRNA is needed and not installed.
    """

    constraints: Constraints = field(default_factory=Constraints)

    def __post_init__(self) -> None:
        check_several("sites", self.sites, '["EcoRI"]')
        as_tuples(self, "sites")
        if self.most_run_bp is not None and self.most_run_bp < 1:
            raise UserError(f"runs of {self.most_run_bp} bases: give 1 or more")
        if self.most_repeat_bp is not None and not 5 <= self.most_repeat_bp <= 30:
            raise UserError(f"repeats of {self.most_repeat_bp} bases: give 5 to 30")
        if self.least_edits < 0:
            raise UserError(f"distance of {self.least_edits} edits: give 0 or more")
        if self.least_kcal is not None:
            if self.least_kcal >= 0:
                raise UserError(f"hairpins of {self.least_kcal} kcal/mol: give less than 0")
            _folding()

    @property
    def exact(self) -> Constraints:
        """Return the constraints that generation satisfies exactly: motifs, sites and runs."""
        run_bp = self.most_run_bp
        runs = tuple(base * (run_bp + 1) for base in BASES) if run_bp else ()
        forbid = (*self.constraints.forbid, *both_strands(self.sites), *runs)
        return replace(self.constraints, forbid=tuple(dict.fromkeys(forbid)))


class RuleChecker:
    """Checks whole sequences against rules."""

    def __init__(self, rules: Rules, prompt: str, length_bp: int) -> None:
        """Build the automaton for the whole length.

        Raises:
            UserError: no sequence of this length satisfies the rules.
        """
        self._rules = rules
        exact = rules.exact
        self._automaton = automaton_for(exact, [prompt], length_bp) if exact else None

    def accepts(self, bases: str) -> bool:
        """Return whether a sequence of A, C, G and T satisfies all rules."""
        if self._automaton and not self._automaton.keeps(0, bases):
            return False
        most_bp, least_kcal = self._rules.most_repeat_bp, self._rules.least_kcal
        if most_bp is not None and has_repeat(bases, most_bp + 1):
            return False
        return least_kcal is None or least_fold_kcal(bases) >= least_kcal


def has_repeat(bases: str, length_bp: int) -> bool:
    """Return whether a sequence of this length occurs twice, on either strand.

    >>> has_repeat("ACGGATTTTCCGT", 5), has_repeat("ACGGATTTTCCGT", 6)
    (True, False)
    """
    kmers = canonical_kmers(bases, length_bp)
    return len(set(kmers.tolist())) < len(kmers)


def least_fold_kcal(bases: str) -> float:
    """Return the lowest free energy of windows of 60 bases that overlap by half, in kcal/mol."""
    fold = _folding()
    step_bp = HAIRPIN_WINDOW_BP // 2
    starts = range(0, max(len(bases) - step_bp, 1), step_bp)
    return min(float(fold(bases[at : at + HAIRPIN_WINDOW_BP])[1]) for at in starts)


def _folding() -> Callable[[str], tuple[str, float]]:
    """Return ViennaRNA's fold function, with energies for DNA."""
    try:
        import RNA
    except ImportError:
        raise UserError(
            "hairpins need ViennaRNA: pip install 'carbon-dna[design]', or omit the rule"
        ) from None
    RNA.params_load_DNA_Mathews2004()
    fold: Callable[[str], tuple[str, float]] = RNA.fold
    return fold
