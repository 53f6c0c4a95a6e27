#!/usr/bin/env bash
# A verb of carbon on Slurm, shared by the tasks of an array or by the nodes of a job; arguments are
# those of carbon (docs/scale.md):
#   sbatch --array 0-99 --gpus 1 scripts/launch/share_slurm.sh variants --model M ... --output O
#   sbatch --nodes 8 --gpus-per-node 8 scripts/launch/share_slurm.sh variants --model M ... --output O
# MODULE=eval shares `python -m eval run`.
#SBATCH --job-name=carbon
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=carbon-%j.log
set -euo pipefail

# One task a node; it starts a process for each of its GPUs. If one fails, the others go on.
exec srun --kill-on-bad-exit=0 "${PYTHON:-.venv/bin/python}" -m "${MODULE:-carbon}" "$@"
