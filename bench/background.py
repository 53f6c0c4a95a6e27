"""Do percentiles among random variants hold, and what do they do to telling stop codons apart?

    python bench/background.py --model M --reference FA --annotation G --background background.json

Fresh random variants of the background's contigs should have uniform percentiles (Kolmogorov and
Smirnov's test of two samples, as the background is one itself). Then random SNVs and indels by
consequence, as many of each: AUROC of the delta, of the percentile, and the 95 % interval of the
difference (bootstrap over variants). The background is one without an annotation, and the window,
strands, offsets and so on are those that its file states.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy import stats

import carbon
from carbon.genome import Consequences, read_gene_file
from carbon.inference.variants.background import Background, VariantSampler

OPTIONS = ("protocol", "window_bp", "by", "strands", "offsets", "tags")
INDEL = "indel"
# Name, damaging sets, control sets.
QUESTIONS = (
    ("stop or synonymous", ["stop_gained"], ["synonymous_variant"]),
    ("stop or intergenic", ["stop_gained"], ["intergenic_variant"]),
    ("frameshift or intergenic indel", ["frameshift_variant"], [f"{INDEL} intergenic_variant"]),
    (
        "all of these",
        ["stop_gained", "frameshift_variant"],
        ["synonymous_variant", "intergenic_variant", f"{INDEL} intergenic_variant"],
    ),
)
Scored = list[tuple[float, float]]  # delta and percentile


def taken(propose: Callable[[], carbon.Variant | None]) -> Iterator[carbon.Variant]:
    """Yield what is proposed and can be drawn."""
    while True:
        if variant := propose():
            yield variant


def some_of(
    variants: Iterator[carbon.Variant], consequences: Consequences, wanted: dict[str, int]
) -> dict[str, list[carbon.Variant]]:
    """Take variants until there are so many of each consequence."""
    found: dict[str, list[carbon.Variant]] = {term: [] for term in wanted}
    for variant in variants:
        term = consequences.of(variant).consequence
        if term in wanted and len(found[term]) < wanted[term]:
            found[term].append(variant)
            if all(len(found[each]) == wanted[each] for each in wanted):
                break
    return found


def ks_pvalue(percentiles: Sequence[float], num_background: int) -> float:
    """Test two samples, of which the background is one."""
    statistic = stats.kstest(np.array(percentiles) / 100, "uniform").statistic
    num = len(percentiles)
    scale = (num * num_background / (num + num_background)) ** 0.5
    return float(stats.kstwobign.sf(statistic * scale))


def auroc(bad: np.ndarray, good: np.ndarray) -> float:
    """Return the share of pairs in which the damaging one is lower, ties counted half."""
    return float(stats.mannwhitneyu(good, bad).statistic / len(bad) / len(good))


def compared(name: str, bad: Scored, good: Scored) -> str:
    """Tell AUROC of delta and percentile, and their difference."""
    some, others = np.array(bad), np.array(good)
    by = [auroc(some[:, column], others[:, column]) for column in (0, 1)]
    numbers, differences = np.random.default_rng(0), []
    for _ in range(1000):
        i = numbers.integers(len(some), size=len(some))
        j = numbers.integers(len(others), size=len(others))
        first, second = (auroc(some[i, column], others[j, column]) for column in (0, 1))
        differences.append(second - first)
    low, high = np.percentile(differences, [2.5, 97.5])
    return (
        f"{name}\t{len(bad)}\t{len(good)}\t{by[0]:.3f}\t{by[1]:.3f}\t"
        f"{by[1] - by[0]:+.3f} ({low:+.3f} to {high:+.3f})"
    )


class Study:
    """A model, a background, and random variants of its contigs."""

    def __init__(self, model: str, reference: str, background: str) -> None:
        """Load them."""
        self.reference = carbon.Reference(reference)
        self.background = Background.read(background)
        self._model = carbon.load(model)
        self._options = {name: self.background.settings[name] for name in OPTIONS}
        contigs = self.background.drawn["contigs"]
        self._places = VariantSampler(self.reference, contigs, np.random.default_rng(77))
        self._numbers = np.random.default_rng(5)
        self.snvs = taken(self._places.snv)

    def indels(self, lengths_bp: Sequence[int]) -> Iterator[carbon.Variant]:
        """Yield deletions and insertions of any of some lengths."""

        def indel() -> carbon.Variant | None:
            name = str(self._numbers.choice(["deletion", "insertion"]))
            return self._places.indel(name, int(self._numbers.choice(lengths_bp)))

        return taken(indel)

    def ranked(self, variants: list[carbon.Variant]) -> dict[str, Scored]:
        """Return deltas and percentiles by kind, of the narrowest and of the broadest."""
        found: dict[str, Scored] = defaultdict(list)
        for each in self._model.score_variants(self.reference, variants, **self._options):
            kind = self.background.kind_of(self.reference, each.variant)
            if kind and each.delta is not None:
                pair = each.delta, self.background.percentile_in(kind, each.delta)
                for name in {kind, kind.split()[0]}:
                    found[name].append(pair)
        return found

    def pairs(self, variants: list[carbon.Variant]) -> Scored:
        """Return deltas and percentiles."""
        found = self.ranked(variants)
        return [pair for kind in ("snv", "deletion", "insertion") for pair in found.get(kind, [])]


def print_uniformity(study: Study, num_fresh: int) -> None:
    """Print a test of uniformity by kind."""
    fresh = [next(study.snvs) for _ in range(num_fresh)]
    indels = study.indels(range(1, 13))
    fresh += [next(indels) for _ in range(num_fresh // 2)]
    print("kind\tbackground\tfresh\tp of KS")
    for kind, found in sorted(study.ranked(fresh).items()):
        num = study.background.table[kind]["variants"]
        pvalue = ks_pvalue([percentile for _, percentile in found], num)
        print(f"{kind}\t{num}\t{len(found)}\t{pvalue:.3f}")


def print_aurocs(study: Study, annotation: str, wanted: int) -> None:
    """Print how well delta and percentile tell consequences apart."""
    consequences = Consequences(study.reference, read_gene_file(annotation, study.reference))
    terms = ("stop_gained", "synonymous_variant", "intergenic_variant")
    sets = some_of(study.snvs, consequences, dict.fromkeys(terms, wanted))
    of_indel = ("frameshift_variant", "intergenic_variant")
    indels = study.indels((1, 2, 4, 5))
    of_indels = some_of(indels, consequences, dict.fromkeys(of_indel, wanted))
    sets["frameshift_variant"] = of_indels["frameshift_variant"]
    sets[f"{INDEL} intergenic_variant"] = of_indels["intergenic_variant"]
    scored = {name: study.pairs(variants) for name, variants in sets.items()}
    print("question\tdamaging\tcontrols\tAUROC of delta\tof percentile\tdifference")
    for name, bad, good in QUESTIONS:
        some, others = ([pair for each in names for pair in scored[each]] for names in (bad, good))
        print(compared(name, some, others))


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "reference", "annotation", "background"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--variants", type=int, default=120, help="of each consequence")
    parser.add_argument("--fresh", type=int, default=700, help="random SNVs")
    given = parser.parse_args()
    study = Study(given.model, given.reference, given.background)
    print_uniformity(study, given.fresh)
    print_aurocs(study, given.annotation, given.variants)


if __name__ == "__main__":
    main()
