"""Constraints on generated DNA."""

from dataclasses import dataclass

from carbon.errors import UserError
from carbon.genome import IUPAC_DNA
from carbon.genome.alphabet import GENETIC_CODE
from carbon.inference.checks import check_several

_LONGEST_MOTIF_BP = 1000


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints on the generated bases.

    Motifs are IUPAC and apply to the generated strand; also pass their reverse complements to
    constrain both strands.

    Attributes:
        forbid: motifs whose occurrences must not overlap a generated base, even if they begin in
            the prompt. An unknown base of the prompt matches any base that it may represent.
        require: motifs that must occur within the generated bases, each at least once.
        gc: minimum and maximum GC content of each consecutive window of `gc_window_bp` bases,
            counted from the first generated base; a shorter last window must satisfy it to within
            one base.
        gc_window_bp: length of the window; None for one window over all generated bases.
        no_stop_frame: 0, 1 or 2: the reading frame, as an offset from the prompt's first base, in
            which no stop codon of the standard code may overlap a generated base.
        protein: amino acids in one-letter code, `*` for a stop, that the generated bases encode by
            the standard code from the first base on, three bases each.

    Raises:
        TypeError: `forbid` or `require` is a single string, whose letters would be motifs.
        UserError: a motif is not IUPAC DNA, or a value is out of range.
    """

    forbid: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    gc: tuple[float, float] | None = None
    gc_window_bp: int | None = None
    no_stop_frame: int | None = None
    protein: str | None = None

    def __post_init__(self) -> None:
        check_several("forbid", self.forbid, '["GAATTC"]')
        check_several("require", self.require, '["GAATTC"]')
        for motif in (*self.forbid, *self.require):
            if not motif or set(motif.upper()) - set(IUPAC_DNA):
                raise UserError(
                    f"motif '{motif}': give IUPAC letters of DNA, such as GAATTC or RGY"
                )
            if len(motif) > _LONGEST_MOTIF_BP:
                raise UserError(f"a motif of {len(motif)} bases: give {_LONGEST_MOTIF_BP} at most")
        if self.gc is not None and not 0 <= self.gc[0] <= self.gc[1] <= 1:
            raise UserError(f"GC share {self.gc[0]} to {self.gc[1]}: give two of 0 to 1, ascending")
        if self.gc_window_bp is not None and (self.gc is None or self.gc_window_bp < 1):
            raise UserError(f"GC window {self.gc_window_bp}: give 1 or more and a GC share with it")
        if self.no_stop_frame not in (None, 0, 1, 2):
            raise UserError(f"frame {self.no_stop_frame} for no stop: give 0, 1 or 2")
        if self.protein is not None and (wrong := set(self.protein) - set(GENETIC_CODE.values())):
            raise UserError(
                f"protein: {min(wrong)!r} is no amino acid; give capital letters such as MAK, and "
                "* for a stop"
            )

    def __bool__(self) -> bool:
        """Whether there is any constraint."""
        return self != Constraints()
