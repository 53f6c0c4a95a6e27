#!/usr/bin/env bash
# Trains a small model of a genome, scores variants with it and writes a report. For a simulated genome
# this takes seven minutes on two cores; or give your own:
#
#   bash runs/quickstart.sh
#   GENOME=yeast.fa.gz ANNOTATION=yeast.gtf.gz OUTPUT=yeast bash runs/quickstart.sh
#
# The same command continues an interrupted run, since each step is skipped if its result exists.
# Arguments go to the training: bash runs/quickstart.sh --set phases.0.tokens=3_000_000
# Settings are environment variables:
genome=${GENOME-}                #   GENOME          FASTA, plain, bgzip or gzip; default: simulated
annotation=${ANNOTATION-}        #   ANNOTATION      GFF3, GTF or BED of that genome, plain or gzip
contigs=${CONTIGS-}              #   CONTIGS         if it names contigs differently: a table, or chr
holdout=${HOLDOUT:-auto}         #   HOLDOUT         contig or region to hold out
code=${GENETIC_CODE-}            #   GENETIC_CODE    NCBI table of CDS that state none
cds=${INCOMPLETE_CDS:-error}     #   INCOMPLETE_CDS  drop: leave out CDS that are incomplete
minutes=${MINUTES-${genome:+15}} #   MINUTES         of training; default: 15 with GENOME, else
                                 #                   the tokens of train/recipes/tiny.toml
processes=${PROCESSES:-2}        #   PROCESSES       that train
genome_bp=${GENOME_BP:-2400000}  #   GENOME_BP       size of the simulated genome
variants=${VARIANTS:-900}        #   VARIANTS        labelled variants to score
sites=${SITES:-1000}             #   SITES           sites of sequence recovery
seed=${SEED:-0}                  #   SEED
out=${OUTPUT:-quickstart}        #   OUTPUT          folder of all results; default: quickstart
set -euo pipefail
case ${1-} in -h | --help) sed -n '2,/OUTPUT  /s/^[^#]*#\( \|$\)//p' "$0" && exit ;; esac
. "$(dirname "$0")/steps.bash"

[ -z "$annotation" ] || [ -n "$genome" ] || fail "ANNOTATION: give the GENOME that it belongs to"
for file in ${genome:+"$genome"} ${annotation:+"$annotation"}; do need_file "$file"; done
genome=${genome:+$(realpath -- "$genome")} annotation=${annotation:+$(realpath -- "$annotation")}
[ ! -f "$contigs" ] || contigs=$(realpath -- "$contigs")
out=$(realpath -m -- "$out")
title=Quickstart${genome:+ on ${genome##*/}} vcf=$out/variants.vcf
same_settings "$out" GENOME="$genome" ANNOTATION="$annotation" CONTIGS="$contigs" HOLDOUT="$holdout" \
  GENETIC_CODE="$code" INCOMPLETE_CDS="$cds" MINUTES="$minutes" PROCESSES="$processes" \
  GENOME_BP="$genome_bp" VARIANTS="$variants" SITES="$sites" SEED="$seed" "arguments=$*"
cd "$root"

# 1. A genome with genes, and variants of known effect.
if [ -z "$genome" ]; then
  step "$out/genome" carbon corpus simulate --output "$out/genome" \
    --genome-bp "$genome_bp" --variants "$variants" --seed "$seed"
  genome=$out/genome/genome.fa annotation=$out/genome/genes.gff3 vcf=$out/genome/variants.vcf
fi

# 2. The corpus, with one contig held out.
step "$out/corpus" carbon corpus build --set output="$out/corpus" \
  --set assemblies.0.genome="$genome" --set assemblies.0.annotation="$annotation" \
  --set assemblies.0.contigs="$contigs" --set assemblies.0.holdout="[\"$holdout\"]" \
  --set assemblies.0.incomplete_cds="$cds" ${code:+--set assemblies.0.genetic_code="$code"}

# 3. Variants of known effect in the held-out part of your genome, if it has coding genes.
if [ -n "$annotation" ]; then
  step "$vcf" carbon corpus variants --genome "$genome" --annotation "$annotation" \
    ${contigs:+--contigs "$contigs"} ${code:+--genetic-code "$code"} --corpus "$out/corpus" \
    --variants "$variants" --seed "$seed" --output "$vcf" || [ $? = 2 ]
  [ -e "$vcf" ] || note "without variants of known effect, the report has no AUROC"
fi

# 4. Training, from cross-entropy to FNS. MINUTES become tokens by timing a few steps.
recipe=train/recipes/tiny.toml
threads=${OMP_NUM_THREADS:-$(($(nproc) > processes ? $(nproc) / processes : 1))}
[ -n "$annotation" ] ||
  set -- --set "phases.0.mixture={genome=1.0}" --set "phases.1.mixture={genome=1.0}" "$@"
if [ -n "$minutes" ]; then
  OMP_NUM_THREADS=$threads step "$out/recipe.toml" python -m train.planning.time_budget \
    --config $recipe --set data.corpus="$out/corpus" "$@" \
    --minutes "$minutes" --processes "$processes" --output "$out/recipe.toml"
  recipe=$out/recipe.toml
fi
OMP_NUM_THREADS=$threads step "$out/run/summary.html" python -m train.launch --standalone \
  --nproc-per-node "$processes" -m train --config "$recipe" --set output="$out/run" \
  --set data.corpus="$out/corpus" --set seed="$seed" "$@" --resume auto

# 5. The effect of the variants, by both strands.
data=$out/data last=heldout_likelihood
if [ -e "$vcf" ]; then
  step "$out/scored.vcf.gz" carbon variants --model "$out/run/export" --reference "$genome" \
    --vcf "$vcf" --strands both --output "$out/scored.vcf.gz" --resume
  step "$data/labelled_variants.parquet" carbon eval build labelled_variants \
    --output "$data" --vcf "$vcf" --reference "$genome"
  last=labelled_variants
fi

# 6. Tasks on the held-out part, sampled sequence, and the report.
step "$data/heldout_likelihood.parquet" carbon eval build genome_recovery,heldout_likelihood \
  --output "$data" --corpus "$out/corpus" --examples "$sites" --seed "$seed"
source=$([ -d "$out/corpus/eukaryote" ] && echo eukaryote || echo genome)
step "$out/eval/$last/model.json" carbon eval run --model model="$out/run/export" \
  --data "$data" --reference "$genome" --train "$out/corpus/$source" --orders 0,6,16 \
  --output "$out/eval" --resume
step "$out/generated.fa" carbon generate --model "$out/run/export" --length 1200 --seed "$seed" \
  --output "$out/generated.fa"
step "$out/results.json" carbon eval report "$out/eval" --run "$out/run" --title "$title" \
  --generated "$out/generated.fa" --output "$out"
echo "report: $out/report.html"
echo "results: $out/results.json"
