"""Variant: how likely a change is, next to other changes of its gene, by one method."""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from carbon.errors import UserError
from carbon.genome import Interval, Variant
from carbon.genome.genes import Gene
from carbon.genome.genome import Genome
from carbon.genome.normalize import normalize_variant
from carbon.inference import VariantKeywords
from carbon.inference.options import STRANDS_READ
from carbon.inference.variants.score import STRAND_NAMES, VariantScore
from demo import neighbouring_snvs as snvs
from demo import variant_views as views
from demo.coding import changes_side_by_side
from demo.fields import INPUT, Field, Values, genome_field, input_field, input_link
from demo.gene_examples import Example as ExampleGene
from demo.inputs import Detected
from demo.lab import Lab
from demo.lru_cache import LruCache
from demo.panel import Example, Panel, Pick, Progress, Result, View
from demo.preview import Card
from demo.uploads import (
    Listed,
    first_variants,
    is_pasted,
    pasted_link,
    printed_vcf,
    shown_reference,
)
from demo.words import named

_PROTOCOL: Literal["centered"] = "centered"
_WINDOW_BP = 384
_MOST_MAP_BP = 120
_SNVS_OF_EACH = 24  # consequence
_CACHED = 8  # regions
_MOST_VARIANTS = 200
_MOST_ALLELES = 12
CHANGE = "change"  # the field that selects a variant of a pasted sequence


class Question(NamedTuple):
    """What the values ask about.

    Attributes:
        genome: genome of the variant.
        gene: gene of the variant; None if there is none.
        variant: the variant.
        alleles: variants next to it, without itself.
        listed: variants of an uploaded VCF.
    """

    genome: Genome
    gene: Gene | None
    variant: Variant
    alleles: tuple[Variant, ...]
    listed: list[Listed]


class VariantEffect(Panel):
    """Page that scores a variant, and other changes of its gene in the same way."""

    name = "variant"
    title = "Variant"
    heading = "Break a gene"
    sentence = (
        "How likely the model finds a change of DNA, next to a stop, a missense and a synonymous "
        "change of the same codon. All numbers of the page come from one method."
    )
    run_label = "Score"
    views: ClassVar[tuple[View, ...]] = (
        View("verdict"),
        View("alleles"),
        View("strip", "figure", "SNVs of the gene or region by consequence, these changes marked"),
        View("map", "figure", "The part of each base in the delta; below, every SNV: click one"),
        View("tsv"),
        View("table"),
    )

    def __init__(self, lab: Lab) -> None:
        self._scores: LruCache[snvs.Scores] = LruCache(_CACHED)
        self._terms: LruCache[dict[Variant, str]] = LruCache(_CACHED)
        super().__init__(lab)

    def make_fields(self) -> tuple[Field, ...]:
        example = self.lab.example
        most_bp = self.lab.model.variant_method(protocol=_PROTOCOL).window_bp
        return (
            input_field(example.name, "Variant, or gene",
                        f"such as {', '.join(example.spellings()[1:])}, or a row of a VCF"),
            Field("alleles", "Compare with", "", "lines", most=1000,
                  info="one variant a line; empty for three changes of the same codon"),
            Field(CHANGE, "Variant of a pasted sequence", "", more=True,
                  info="such as 40 A>C; without one, a change of its first gene, or of its middle"),
            Field("strands", "Strands", "both", "choice", tuple(STRANDS_READ), more=True),
            Field("window_bp", "Window in bases", min(_WINDOW_BP, most_bp), "integer", least=48,
                  most=most_bp, more=True,
                  info="the model reads so many bases around each variant"),
            Field("map_bp", "Bases in the heat map", 30, "integer", least=6, most=_MOST_MAP_BP,
                  more=True),
            Field("vcf", "Your own variants", [], "files", (".vcf",), more=True,
                  info=f"a sorted VCF; the first {_MOST_VARIANTS} variants are scored"),
            genome_field(),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        """Return the changes of the example gene, and another gene's splice site."""
        example, genes = self.lab.example, self.lab.known_genes
        changes = example.variants()
        return (
            *(Example(label, {INPUT: variant.to_text()}) for label, variant in changes.items()),
            *(Example(f"A stop in {name}", {INPUT: name}, genes[name]) for name in [*genes][1:3]),
        )

    def picks(self) -> tuple[Pick, ...]:
        """Return the click on a cell of the heat map: its SNV becomes the variant."""
        return (Pick("map", self._picked),)

    def _picked(self, variant: Any, values: Values) -> Values:
        return {_field_of(self._question(values).genome): str(variant)}

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the variant next to others, then its surroundings, its gene, and the VCF."""
        question = self._question(values)
        genome, variant = question.genome, question.variant
        place = snvs.place_around(genome, question.gene, variant)
        scores = self._scores_of(genome, place, values)
        yield from scores.add([variant, *question.alleles])
        result = self._side_by_side(question, scores) | self._strands(genome, variant, values)
        yield result
        result |= yield from snvs.heat_map(genome, variant, values["map_bp"], scores)
        yield result
        result |= {"snvs": (yield from self._by_consequence(question, place, scores))}
        yield result
        if values["vcf"]:
            yield from self._with_vcf(question, scores, result)

    def _question(self, values: Values) -> Question:
        """Return the variant, and the changes next to it.

        Raises:
            UserError: the input or an allele is no variant, gene or sequence, or the VCF and the
                input belong to different genomes.
        """
        genome = self.lab.genome_of(values["genome"])
        listed = first_variants(values["vcf"], genome.reference, _MOST_VARIANTS + 1)
        variant = None
        if values[INPUT] in ("", self.lab.example.name):
            variant = _first_scorable(listed)
        if variant:
            gene = next(iter(genome.genes_in(variant.interval)), None)
        elif listed and not values[INPUT]:
            raise UserError("the VCF has no variant that can be scored; type one above")
        else:
            detected = self.lab.detect(values[INPUT], values["genome"])
            if listed and detected.genome is not genome:
                raise UserError(
                    "the VCF belongs to the open genome, and the input is another sequence; "
                    "remove the VCF, or upload the sequence as your own genome"
                )
            genome, gene, variant = self._asked(detected, values)
        alleles = self._alleles(values, genome, gene) or _changes_near(genome, gene, variant)
        others = tuple(each for each in dict.fromkeys(alleles) if each != variant)
        return Question(genome, gene, variant, others, listed)

    def _asked(self, detected: Detected, values: Values) -> tuple[Genome, Gene | None, Variant]:
        genome, gene = detected.genome, detected.gene
        if not (is_pasted(genome) and values[CHANGE]):
            return genome, gene, detected.variant or _first_variant(detected)
        variant = self.lab.variant_in(genome, values[CHANGE], gene)
        return genome, next(iter(genome.genes_in(variant.interval)), None), variant

    def _alleles(self, values: Values, genome: Genome, gene: Gene | None) -> list[Variant]:
        """Return the variants to compare with, in the genome and gene of the input."""
        lines = [line for line in values["alleles"].splitlines() if line.strip()]
        if len(lines) > _MOST_ALLELES:
            raise UserError(f"Compare with: {len(lines)} variants; give {_MOST_ALLELES} at most")
        return [self.lab.variant_in(genome, line, gene) for line in lines]

    def _scores_of(self, genome: Genome, place: Interval, values: Values) -> snvs.Scores:
        options = _options(values)
        key = (genome.reference, place, *options.values())
        return self._scores.get(key, lambda: snvs.Scores(self.lab.model, genome.reference, options))

    def _side_by_side(self, question: Question, scores: snvs.Scores) -> Result:
        genome, variant = question.genome, question.variant
        score = scores.scores[variant]
        if score.reason:
            reason = score.reason.replace("_", " ")
            raise UserError(f"variant {named(variant.to_text())} cannot be scored: {reason}")
        rows = [
            snvs.score_values(scores.scores[each], genome.reference)
            | {"effects": snvs.effect_values(genome, each)}
            for each in (variant, *question.alleles)
        ]
        return {**rows[0], "method": dict(scores.options), "alleles": rows}

    def _strands(self, genome: Genome, variant: Variant, values: Values) -> Result:
        """Return the part of each base in each strand's delta."""
        method = self.lab.model.variant_method(**_options(values))
        _, strands = self.lab.model.compare_alleles(genome.reference, variant, method)
        parts = {
            STRAND_NAMES[strand]: {
                "allele_delta": compared.allele_delta,
                "downstream_deltas": compared.downstream_deltas.tolist(),
                "length_delta": compared.length_delta,
            }
            for strand, compared in strands.items()
        }
        return {"strands": parts}

    def _by_consequence(
        self, question: Question, place: Interval, scores: snvs.Scores
    ) -> Generator[Progress, None, Result]:
        """Return SNVs of the region by consequence, and where the variant stands among them."""
        genome, variant = question.genome, question.variant
        terms = self._terms.get(
            (genome.reference, place),
            lambda: snvs.consequences_in(genome.reference, place, genome.annotation),
        )
        drawn = {each: terms[each] for each in snvs.some_of_each(terms, _SNVS_OF_EACH)}
        yield from scores.add(sorted(drawn, key=lambda each: each.position))
        deltas = snvs.by_consequence(drawn, scores.deltas)
        shown = (variant, *question.alleles)
        own, *others = (terms.get(normalize_variant(genome.reference, each)) for each in shown)
        like = deltas.get(own, []) if own else []
        delta = scores.deltas[variant]
        return {
            "region": place.to_region(),
            "all": dict(Counter(terms.values())),
            "deltas": deltas,
            "consequences": [own, *others],
            "lower": sum(each < delta for each in like),
        }

    def _with_vcf(
        self, question: Question, scores: snvs.Scores, result: Result
    ) -> Iterator[Progress | Result]:
        shown = question.listed[:_MOST_VARIANTS]
        yield from scores.add(variant for variant, reason in shown if reason is None)
        reference = question.genome.reference
        rows = [
            snvs.score_values(scores.scores[variant], reference)
            if reason is None
            else snvs.score_values(VariantScore(variant, None, reason), reference)
            for variant, reason in shown
        ]
        yield result | {"vcf": rows, "vcf_has_more": len(question.listed) > len(shown)}

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        question = self._question(values)
        field = _field_of(question.genome)

        def link_of(variant: str) -> str:
            return self.link(values | {field: variant})

        return {
            "verdict": views.verdict(result),
            "alleles": views.side_by_side(result, link_of),
            "strip": views.snv_strip(result),
            "map": views.effect_map(question.genome, result),
            "table": views.vcf_table(result),
            "tsv": views.downloads(result) + pasted_link(question.genome, values[INPUT]),
        }

    def questions(self, values: Values, result: Result) -> Sequence[tuple[str, str]]:
        """Return links to the gene, and to what the model would write there.

        Pasted sequences go along as a whole, and uploads do not.
        """
        if values["genome"]:
            return ()
        question = self._question(values)
        gene, pasted = question.gene, is_pasted(question.genome)
        text = values[INPUT] if pasted else result["variant"]
        links = [("What does the model expect around it?", input_link("/gene", text))]
        if gene and not pasted:
            write = f"How would the model write {gene.name}?"
            links.append((write, input_link("/write", gene.name)))
        return links

    def card(self, values: Values, result: Result) -> Card:
        """Return the verdict, with the least likely SNV at each base as picture."""
        lowest = [min((d for d in row if d is not None), default=0.0) for row in result["deltas"]]
        return Card(views.title_of(result), views.first_sentence(result), tuple(-d for d in lowest))

    def code(self, values: Values) -> Mapping[str, Any]:
        question = self._question(values)
        variants = (question.variant, *question.alleles)
        return {
            **shown_reference(question.genome),
            "variants": [each.to_text() for each in variants],
            "printed": printed_vcf(variants, "side_by_side.vcf"),
            "window": snvs.window_around(question.genome, question.variant, values["map_bp"]),
            "options": _options(values),
            "vcf": Path(values["vcf"][0]).name if values["vcf"] else "",
        }


def _options(values: Values) -> VariantKeywords:
    return {"protocol": _PROTOCOL, "window_bp": values["window_bp"], "strands": values["strands"]}


def _first_scorable(listed: Sequence[Listed]) -> Variant | None:
    fit = (v for v, reason in listed if reason is None and v.why_unscorable() is None)
    return next(fit, None)


def _first_variant(detected: Detected) -> Variant:
    """Return a stop of the gene, or else another change of the gene or region."""
    gene = detected.gene
    name = gene.name if gene and gene.transcripts else detected.interval.to_region()
    return ExampleGene(detected.genome, name).first_variant()


def _field_of(genome: Genome) -> str:
    """Return the field that selects a variant of a genome."""
    return CHANGE if is_pasted(genome) else INPUT


def _changes_near(genome: Genome, gene: Gene | None, variant: Variant) -> list[Variant]:
    """Return changes of the codon of the variant, or else of another codon of its gene."""
    if gene is None:
        return []
    position = normalize_variant(genome.reference, variant).position
    changes = changes_side_by_side(genome, gene, position) or changes_side_by_side(genome, gene)
    return list(changes.values())
