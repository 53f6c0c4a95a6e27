#!/usr/bin/env bash
# A carbon command on the nodes of one Slurm job, by Ray (docs/scale.md); arguments are those of
# carbon, or of `carbon eval` with MODULE=eval:
#   sbatch --nodes 8 --gpus-per-node 8 scripts/launch/ray_slurm.sh variants --model M ... --output O
# The exit code is that of the command. A job that Slurm requeues continues where it was stopped.
#SBATCH --job-name=carbon
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=carbon-%j.log
set -euo pipefail

# The mode is set explicitly: some processes of Ray assume a token, and others do not.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_TOKEN="${RAY_AUTH_TOKEN:-$(openssl rand -hex 32)}"

python="${PYTHON:-.venv/bin/python}"
ray="${RAY:-$(dirname "$python")/ray}"
port="${PORT:-$((20000 + SLURM_JOB_ID % 10000))}" # two jobs may share a network
head="${HEAD:-$(hostname --ip-address | cut -d' ' -f1)}"
export RAY_ADDRESS="$head:$port"

"$ray" start --head --node-ip-address "$head" --port "$port" --include-dashboard false
trap '"$ray" stop' EXIT # the end of the job ends what srun has started
if ((SLURM_NNODES > 1)); then
  srun --nodes "$((SLURM_NNODES - 1))" --ntasks-per-node 1 --exclude "$(hostname)" \
    --kill-on-bad-exit=0 "$ray" start --address "$RAY_ADDRESS" --block &
fi

status=0
"$python" -m "${MODULE:-carbon}" "$@" ${SLURM_RESTART_COUNT:+--resume} || status=$?
exit "$status"
