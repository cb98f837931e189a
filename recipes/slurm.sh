#!/usr/bin/env bash
#SBATCH --job-name=unitk --nodes=1 --ntasks=1 --gpus-per-node=8 --cpus-per-task=32 --time=24:00:00
#SBATCH --requeue --open-mode=append --signal=B:USR1@300
# Train on one machine of a Slurm cluster and requeue the job before its time limit:
#
#   sbatch recipes/slurm.sh --task mlm --data data-bin/books --save-dir runs/mlm --max-steps 100000 --nproc 8
#
# Slurm gives a task one core unless --cpus-per-task says more: 32 are four a GPU.
# Slurm sends SIGUSR1 to this script 300 seconds before the limit. unitk saves and exits with code 75.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # since Slurm 22.05 srun does not take it from the job
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
