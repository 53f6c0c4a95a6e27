#!/usr/bin/env bash
# A verb of carbon on machines without a scheduler: the same command on each, in any order;
# arguments are those of carbon (docs/scale.md):
#   NODES=2 HEAD=10.0.0.1:29500 scripts/launch/share_torchrun.sh variants --model M ... --output O
# HEAD is the address of one of the machines and a free port. On one machine neither is needed.
# MODULE=eval shares `python -m eval run`.
set -euo pipefail

# One process a machine; it starts a process for each GPU. (If one of torchrun's own dies, torchrun
# ends all of them and starts them again.)
exec "${PYTHON:-.venv/bin/python}" -m torch.distributed.run \
  --nnodes "${NODES:-1}" --nproc-per-node 1 \
  --rdzv-backend c10d --rdzv-endpoint "${HEAD:-localhost:29500}" \
  --rdzv-id "${RUN:-carbon}" --max-restarts "${RESTARTS:-3}" \
  -m "${MODULE:-carbon}" "$@"
