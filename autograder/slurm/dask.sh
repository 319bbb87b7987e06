#!/bin/bash
# Grade a lab on several nodes, with Dask:
#
#     LAB=collectives SUBMISSIONS=/home/me/handed-in GRADES=/home/me/grades sbatch --nodes=4 autograder/slurm/dask.sh
#
# and one that asks for a GPU, on eight of them a node:
#
#     GPU=1 LAB=… SUBMISSIONS=… GRADES=… sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-task=1 autograder/slurm/dask.sh
#
# The checkout and GRADES lie where all nodes see them. Otherwise as node.sh. Dask asks nobody for a password: whoever reaches
# the scheduler's port can run code as you. Where others share the nodes' network, set up its TLS.
#SBATCH --job-name=grading --ntasks-per-node=1 --exclusive --time=01:00:00 --signal=B:INT@60
set -euo pipefail
python=.venv/bin/python
mkdir -p "$GRADES"
file="$GRADES/dask-$SLURM_JOB_ID.json" # where the scheduler says its address

if [ -n "${GPU:-}" ]; then
  worker=(--nworkers 1 --resources GPU=1) # one a task: Slurm shows each task its own GPU
else
  worker=(--nworkers "$SLURM_CPUS_ON_NODE")
fi
"$python" -m dask scheduler --scheduler-file "$file" --port 0 --no-dashboard &
srun "$python" -m dask worker --scheduler-file "$file" --nthreads 1 "${worker[@]}" --no-dashboard --local-directory /tmp &
until [ -s "$file" ]; do sleep 1; done
address=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$file")

# In the place of this shell, so that the signal reaches it. What is left, Slurm ends with the job.
exec "$python" -m autograder grade "$LAB" --submissions "$SUBMISSIONS" --grades "$GRADES" --scheduler "$address"
