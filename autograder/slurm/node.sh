#!/bin/bash
# Grade a lab on one node:
#
#     LAB=collectives SUBMISSIONS=/home/me/handed-in GRADES=/home/me/grades sbatch autograder/slurm/node.sh
#
# Submit it from a checkout of the course in which `make labs` has made the environment. A minute before its time is over it
# stops as by Ctrl-C; submitted again, it goes on.
#SBATCH --job-name=grading --nodes=1 --exclusive --time=01:00:00 --signal=B:INT@60
set -euo pipefail

# In the place of this shell, so that the signal reaches it.
exec .venv/bin/python -m autograder grade "$LAB" --submissions "$SUBMISSIONS" --grades "$GRADES" \
  --workers "$SLURM_CPUS_ON_NODE"
