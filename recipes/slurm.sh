#!/usr/bin/env bash
#SBATCH --job-name=unitk
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=8
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300
#SBATCH --time=24:00:00
# Written by `unitk launch slurm`. Options of this script are options of `unitk train`:
#
#   sbatch FILE [--task mlm --data data-bin/books --save-dir runs/mlm ...]
#
# Each task of srun is a rank. torchrun is not used: it would turn exit code 75 into 1.
# Slurm sends SIGUSR1 to this script 300 seconds before the limit. unitk saves, and exits with 75.
set -u
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
WORLD_SIZE=$SLURM_NTASKS
export MASTER_ADDR MASTER_PORT WORLD_SIZE
# since Slurm 22.05 srun does not take it from the job
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
# a rank that has saved must not end those that still do: --kill-on-bad-exit=0
# shellcheck disable=SC2016  # each task expands its own numbers
srun --kill-on-bad-exit=0 bash -c '
  export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID
  export LOCAL_WORLD_SIZE=$((WORLD_SIZE / SLURM_NNODES))
  exec unitk "$@"' rank train --resume "$@" &
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
