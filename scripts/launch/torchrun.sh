#!/usr/bin/env bash
# A run without a scheduler: the same command on each node, from the root of the checkout, in any
# order; arguments go to the trainer (docs/launch.md):
#   NODES=2 HEAD=10.0.0.1:29500 scripts/launch/torchrun.sh --config train/recipes/carbon_3b.toml
# HEAD is the address of one of the nodes and a free port. On one node neither is needed.
set -euo pipefail

# How long processes have to end their step and save after SIGTERM; 30 seconds if not set.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT="${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-540}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-8}"
# Batches are of varied sizes; fixed blocks of the allocator would be left half empty.
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
ulimit -n "$(ulimit -Hn)" # the launcher of the first node has connections to all processes

# `gpu` is one process to a GPU; without one, give a number.
exec .venv/bin/python -m train.launch \
  --nnodes "${NODES:-1}" --nproc-per-node "${GPUS_PER_NODE:-gpu}" \
  --rdzv-backend c10d --rdzv-endpoint "${HEAD:-localhost:29500}" \
  --rdzv-id "${RUN:-carbon}" --max-restarts "${RESTARTS:-3}" \
  -m train --resume auto "$@"
