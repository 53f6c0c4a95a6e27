#!/usr/bin/env bash
# Trains the bundled model again, from the FASTA (dna.toplevel) and the GTF of Saccharomyces cerevisiae
# R64-1-1 (Ensembl, release 96): an hour and a half on two cores, without the scores of variants
# at the end. Equal files, libraries and processors give equal bytes.
#
#   GENOME=R64-1-1.fa.gz ANNOTATION=R64-1-1.96.gtf.gz OUTPUT=my_yeast bash runs/yeast.sh
#
# The same command continues an interrupted run, since each step is skipped if its result exists.
# Arguments go to the training. Settings are environment variables:
genome=${GENOME-}                       #   GENOME      FASTA, gzip or plain
annotation=${ANNOTATION-}               #   ANNOTATION  GTF of the same release
work=${WORK:-runs/bundled_model}        #   WORK        folder of intermediate results
corpus=${CORPUS:-$work/corpus}          #   CORPUS      corpus that is built, or that exists
run=${RUN:-$work/run}                   #   RUN         run that is trained, or that is complete
out=${OUTPUT:-carbon/pretrained/yeast}  #   OUTPUT      model folder to write
set -euo pipefail
case ${1-} in -h | --help) sed -n '2,/OUTPUT  /s/^[^#]*#\( \|$\)//p' "$0" && exit ;; esac
. "$(dirname "$0")/steps.bash"

need_file "$genome" && need_file "$annotation"
genome=$(realpath -- "$genome") annotation=$(realpath -- "$annotation")
for name in work corpus run out; do declare $name="$(realpath -m -- "${!name}")"; done
[ ! -e "$out" ] || fail "$out: exists; remove it or name another OUTPUT"
same_settings "$work" GENOME="$genome" ANNOTATION="$annotation" CORPUS="$corpus" RUN="$run" \
  "arguments=$*"
cd "$root"
export OMP_NUM_THREADS=1 # a fixed order of sums, and so the same bytes each time
processes=$(python -c "import torch; print(1 if torch.cuda.is_available() else 2)")

# 1. The corpus: the genome in chunks and its transcripts, with chromosome VIII held out.
step "$corpus" carbon corpus build --config data_pipeline/recipes/yeast_bundled_model.toml \
  --set output="$corpus" --set assemblies.0.genome="$genome" \
  --set assemblies.0.annotation="$annotation"

# 2. Training, and the model in bfloat16.
step "$run/summary.html" python -m train.launch --standalone --nproc-per-node "$processes" \
  -m train --config train/recipes/yeast.toml --set output="$run" --set data.corpus="$corpus" "$@" \
  --resume auto
step "$work/export" carbon train export --config "$run/config.toml" --set output="$run" \
  --set data.corpus="$corpus" --output "$work/export"
step "$work/model" carbon convert "$work/export" "$work/model" --dtype bfloat16

# 3. Percentiles from random variants, and measures on chromosome VIII.
step "$work/model/background.json" carbon background --model "$work/model" --reference "$genome" \
  --annotation "$annotation" --draw-from VIII --variants-per-kind 110 \
  --output "$work/model/background.json"
step "$work/data/heldout_likelihood.parquet" carbon eval build \
  genome_recovery,gene_frames,codon_adaptation,consequences,heldout_likelihood \
  --output "$work/data" --corpus "$corpus" --corpus-source genome --reference "$genome" \
  --annotation "$annotation" --finetuned-genes "RP[LS][0-9]" --num-each 200 \
  --most-bp 1000000000 --examples 1000 --seed 0
step "$work/records/heldout_likelihood/yeast.json" carbon eval run --model yeast="$work/model" \
  --data "$work/data" --reference "$genome" --train "$corpus/genome" --orders 0,6,16 \
  --codon-periodic "$genome,$annotation,$corpus" --output "$work/records" --resume
step "$work/eval/heldout/results.json" carbon eval report "$work/records" \
  --output "$work/eval/heldout"

step "$work/eval/variant_scores/results.json" python bench/known_variants.py "$work/model" "$genome" \
  --annotation "$annotation" --region VIII --output "$work/eval/variant_scores/results.json"

# 4. The folder of the model, with card and chromosome VIII.
step "$out" python runs/yeast_model.py --genome "$genome" --annotation "$annotation" \
  --corpus "$corpus" --run "$run" --work "$work" --output "$out"
