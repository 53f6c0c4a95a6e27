"""Score a variant: the likelihood of ALT compared with REF, base by base."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from carbon.errors import UserError
from carbon.genome import Variant, from_region
from carbon.genome.genome import Genome
from carbon.inference import VariantKeywords, VariantScore, join_chunks
from carbon.inference.options import STRANDS_READ, WINDOW_PROTOCOLS
from carbon.inference.variants import Method
from demo import neighbouring_snvs
from demo import variant_views as views
from demo.fields import Field, Values
from demo.lab import Lab
from demo.lru_cache import Kept
from demo.markup import paragraph
from demo.neighbouring_snvs import (
    SnvsByConsequence,
    told_effects,
    told_numbers,
    told_score,
    told_strands,
)
from demo.panel import Command, Example, Panel, Pick, Progress, Result, View
from demo.sequence_pairs import named
from demo.uploads import GENOME_ENDINGS, shown_reference, without_folders
from demo.variant_files import Listed, first_variants, printed_vcf

_MOST_WINDOW_BP = 240
_MOST_STRIP_BP = 3000
_SNVS_OF_EACH = 24  # consequence, each scored in a separate window
_KEPT_STRIPS = 8
_MOST_VARIANTS = 200


class VariantEffect(Panel):
    """Page that scores a variant and all SNVs around it."""

    name = "variant"
    title = "Variant effect"
    invitation = "Ask what a mutation does"
    sentence = (
        "How much less likely the model finds a variant than the reference, which bases behind it "
        "say so, and where it stands among other changes of its gene."
    )
    run_label = "Score"
    views: ClassVar[tuple[View, ...]] = (
        View("facts", "html", "The variant in numbers"),
        View("strip", "figure", "SNVs of the gene by consequence, this one marked"),
        View("map", "figure", "Bases behind the variant, every SNV around it, exons below"),
        View("tsv", "html", "Download"),
        View("table", "html", "The variants of your VCF"),
    )

    def __init__(self, lab: Lab) -> None:
        """Choose examples from the lab's genome."""
        told = {label: variant for label, (variant, _) in lab.explained_variants.items()}
        self._examples = told or {k: v.to_text() for k, v in lab.example.variants().items()}
        self._strips: Kept[SnvsByConsequence] = Kept(_KEPT_STRIPS)
        super().__init__(lab)

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        return (
            Field("variant", "Variant", next(iter(self._examples.values())),
                  info="such as VIII-55172-G-T, 55172G>T or GENE:c.28A>T; or click a cell of the "
                  "heat map; empty for the first of your VCF"),
            Field("window_bp", "Bases in the heat map", 60, "integer", least=6,
                  most=_MOST_WINDOW_BP,
                  info="its deltas are those of the alleles alone, read in the same window"),
            Field("strands", "Strands that are read", "both", "choice",
                  tuple(STRANDS_READ)),
            Field("protocol", "Protocol", "centered", "choice", tuple(WINDOW_PROTOCOLS),
                  info="centered compares windows around the variant, right_end the alleles"),
            Field("vcf", "Your own variants", [], "files", (".vcf",), more=True,
                  info=f"a sorted VCF, of which the first {_MOST_VARIANTS} variants are scored"),
            Field("genome", "Your own genome", [], "files", GENOME_ENDINGS, more=True,
                  info="one GenBank file, or FASTA and annotation"),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        """Return further examples."""
        first, *others = self._examples.items()
        return (
            *(Example(label, {"variant": variant}) for label, variant in others),
            Example("The alleles alone", {"variant": first[1], "protocol": "right_end"}),
        )

    def picks(self) -> tuple[Pick, ...]:
        """Return the click on a cell of the heat map: its SNV becomes the variant."""
        return (Pick("map", lambda picked, values: {"variant": str(picked)}),)

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the result of one variant, then also the results of the VCF."""
        try:
            yield from self._answered(values)
        except UserError as error:
            files = [*values["genome"], *values["vcf"]]
            error.args = (without_folders(str(error), files),)
            raise

    def _answered(self, values: Values) -> Iterator[Progress | Result]:
        genome, listed, variant = self._read(values)
        method = self.lab.model.variant_method(**_options(values))
        score, strands = self.lab.model.compare_alleles(genome.reference, variant, method)
        if score.reason:
            reason = score.reason.replace("_", " ")
            raise UserError(f"variant {named(variant.to_text())} cannot be scored: {reason}")
        yield Progress(1, 3, "steps")
        window = neighbouring_snvs.window_around(genome, variant, values["window_bp"])
        scan = self.lab.model.scan(
            genome.reference, window, window_bp=method.window_bp, strands=values["strands"]
        )
        scanned = join_chunks(scan)
        result: Result = {
            **told_score(score, genome.reference),
            "read_bp": method.window_bp,
            "effects": told_effects(genome, variant),
            "strands": told_strands(strands),
            "window": window.to_region(),
            "bases": scanned.bases,
            "deltas": told_numbers(scanned.deltas),
        }
        yield result
        result |= {"snvs": self._among_others(genome, variant, method)}
        yield result
        if values["vcf"]:
            yield from self._with_vcf(values, genome, listed, result)

    def _among_others(self, genome: Genome, variant: Variant, method: Method) -> Result:
        """Return SNVs of the gene, or of a region around the variant if the gene is long."""
        reader, read = self.lab.model.runner, neighbouring_snvs.short_method(method)
        place = neighbouring_snvs.place_around(genome, variant, _MOST_STRIP_BP)
        snvs = self._strips.get(
            (genome.reference, place, read),
            lambda: neighbouring_snvs.read_snvs(reader, genome, place, read, _SNVS_OF_EACH),
        )
        told = neighbouring_snvs.told_among(reader, genome, variant, snvs, read)
        return {"region": place.to_region(), **told}

    def _with_vcf(
        self, values: Values, genome: Genome, listed: list[Listed], result: Result
    ) -> Iterator[Progress | Result]:
        shown = listed[:_MOST_VARIANTS]
        rows = []
        for variant, reason in shown:
            score = VariantScore(variant, None, reason)
            if reason is None:
                (score,) = self.lab.model.score_variants(
                    genome.reference, [variant], **_options(values)
                )
            rows.append(told_score(score, genome.reference))
            yield Progress(len(rows), len(shown), "variants")
        yield result | {"vcf": rows, "vcf_has_more": len(listed) > len(shown)}

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return numbers, figure, table and downloads."""
        genome = self.lab.genome_of(values["genome"])
        window = from_region(result["window"], genome.reference.contig_lengths_bp)
        return {
            "facts": self._told(values, result)
            + views.facts_of(values["protocol"], result)
            + views.standing(result.get("snvs")),
            "strip": views.snv_strip(result.get("snvs")),
            "map": views.effect_map(genome, window, result),
            "table": views.vcf_table(result),
            "tsv": views.downloads(window, result),
        }

    def _told(self, values: Values, result: Result) -> str:
        """Return the explanation of a variant of the demo's genome, if it has one."""
        told = {} if values["genome"] else dict(self.lab.explained_variants.values())
        return paragraph(told.get(result["variant"], ""))

    def python(self, values: Values) -> str:
        """Return the program."""
        genome, _, variant = self._read(values)
        window = neighbouring_snvs.window_around(genome, variant, values["window_bp"])
        options = ", ".join(f"{k}={v!r}" for k, v in _options(values).items())
        reference, before, _ = shown_reference(genome)
        program = (
            f"{before}import carbon\nfrom carbon.genome import VcfReader\n\n"
            f"model = carbon.load({self.lab.model_name!r})\n"
            f"variant = carbon.Variant.parse({variant.to_text()!r})\n"
            f"window = carbon.Interval({window.contig!r}, {window.start}, {window.end})\n"
            f"method = model.variant_method({options})\n"
            f"with carbon.Reference({reference!r}) as genome:\n"
            "    score, strands = model.compare_alleles(genome, variant, method)\n"
            "    print(score.variant.to_text(), score.delta, score.forward, score.reverse)\n"
            "    for strand, compared in strands.items():\n"
            "        print(strand, compared.allele_delta, *compared.downstream_deltas)\n"
            "    options = {'window_bp': method.window_bp, 'strands': method.strands}\n"
            "    for chunk in model.scan(genome, window, **options):\n"
            "        for base, deltas in zip(chunk.bases, chunk.deltas):\n"
            "            print(base, *deltas)\n"
        )
        if not values["vcf"]:
            return program.replace("from carbon.genome import VcfReader\n", "")
        return program + (
            f"    for row in VcfReader({Path(values['vcf'][0]).name!r}, genome):\n"
            "        if row.disagreement is None:\n"
            f"            for score in model.score_variants(genome, row.variants, {options}):\n"
            "                print(score.variant.to_text(), score.delta, score.reason)\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command lines; the first writes a VCF of the one variant."""
        genome, _, variant = self._read(values)
        method = self.lab.model.variant_method(**_options(values))
        window = neighbouring_snvs.window_around(genome, variant, values["window_bp"])
        reference, _, before = shown_reference(genome)
        read = ["--model", self.lab.model_name, "--reference", reference,
                "--strands", values["strands"]]  # fmt: skip
        score = ["carbon", "variants", *read, "--protocol", values["protocol"]]
        scan = ["carbon", "scan", *read, "--region", window.to_region(),
                "--window", str(method.window_bp)]  # fmt: skip
        more = ("--skip-mismatches", "--output", "variants.tsv")
        return [
            *before,
            printed_vcf(variant, "variant.vcf"),
            [*score, "--vcf", "variant.vcf", "--output", "variant.tsv"],
            [*scan, "--output", "window.tsv"],
            *([*score, "--vcf", Path(path).name, *more] for path in values["vcf"]),
        ]

    def _read(self, values: Values) -> tuple[Genome, list[Listed], Variant]:
        """Return the genome, the variants of the VCF, and the chosen variant."""
        genome = self.lab.genome_of(values["genome"])
        listed = first_variants(values["vcf"], genome.reference, _MOST_VARIANTS + 1)
        return genome, listed, neighbouring_snvs.variant_or_first(values["variant"], listed, genome)


def _options(values: Values) -> VariantKeywords:
    return {"protocol": values["protocol"], "strands": values["strands"]}
