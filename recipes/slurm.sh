#!/usr/bin/env bash
#SBATCH --job-name=unitk --nodes=1 --gpus-per-node=8 --time=24:00:00
#SBATCH --requeue --open-mode=append --signal=B:USR1@300
# Train on one machine of a Slurm cluster and requeue the job before its time limit:
#
#   sbatch recipes/slurm.sh --task mlm --data data-bin/books --save-dir runs/mlm --max-steps 100000 --nproc 8
#
# Slurm sends SIGUSR1 to this script 300 seconds before the limit. unitk saves and exits with code 75.
srun unitk train --resume "$@" &
child=$!
trap 'kill -USR1 $child' USR1
wait $child
code=$?
while kill -0 $child 2>/dev/null; do # the signal ended wait, not the training
  wait $child
  code=$?
done
[ $code != 75 ] || scontrol requeue "$SLURM_JOB_ID"
exit $code
