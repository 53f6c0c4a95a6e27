#!/usr/bin/env bash
# A run on Slurm, from the root of the checkout; arguments go to the trainer (docs/launch.md):
#   sbatch --nodes 8 scripts/launch/slurm.sh --config train/recipes/carbon_3b.toml
#SBATCH --job-name=carbon
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@600
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=carbon-%j.log
set -euo pipefail

# How long processes have to end their step and save after SIGTERM; 30 seconds if not set. It is
# within the ten minutes before the limit at which Slurm tells this shell (--signal).
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=540
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-8}"
# Batches are of varied sizes; fixed blocks of the allocator would be left half empty.
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
ulimit -n "$(ulimit -Hn)" # the launcher of the first node has connections to all processes

head_node="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"

srun --kill-on-bad-exit=1 .venv/bin/python -m train.launch \
  --nnodes "$SLURM_NNODES" --nproc-per-node "${GPUS_PER_NODE:-8}" \
  --rdzv-backend c10d --rdzv-endpoint "$head_node:${PORT:-29500}" \
  --rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" --max-restarts 3 \
  -m train --resume auto "$@" &
run=$!

# srun passes SIGTERM on to torchrun on every node, and that to the processes: they end the step,
# save, and stop. Before the limit, the job then goes back to the queue, to go on from there.
near_limit=no
trap 'near_limit=yes; kill -TERM "$run"' USR1
trap 'kill -TERM "$run"' TERM
status=0
wait "$run" || status=$?
while kill -0 "$run" 2>/dev/null; do # a signal ends a wait
  wait "$run" || status=$?
done
if [[ $near_limit == yes ]]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
