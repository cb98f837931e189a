#!/usr/bin/env bash
# When does a text autoencoder use its latent? Three ways to train the same one, minutes on a CPU.
#
#   recipes/vae_toy/run.sh
#   REGIMES="constant autoencoder" STEPS=500 recipes/vae_toy/run.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

REGIMES=${REGIMES:-constant constant_threshold cyclical_threshold}
STEPS=${STEPS:-1500}
SEED=${SEED:-1}
# 0.02, made for 768 dimensions, is lost in the noise of a draw where there are 64
INIT_STD=${INIT_STD:-0.1}
RUN=${RUN:-runs/vae_toy}

declare -A options=(
  [constant]="--criterion.beta 1 --criterion.kl-mode sum"
  [constant_threshold]="--criterion.beta 1 --criterion.kl-threshold 0.5"
  [cyclical_threshold]="--criterion.beta cyclical:cycles=1 --criterion.kl-threshold 0.5"
  [autoencoder]="--criterion.beta 0"
)
for regime in $REGIMES; do
  [ -n "${options[$regime]:-}" ] || { echo "REGIMES: there is no $regime (${!options[*]})" >&2; exit 2; }
done
mine "$RUN"
fresh "$RUN" mine "$RUN"
python3 "$here/make_data.py" "$RUN/text"
unitk preprocess --input "$RUN/text/train.txt" --valid "$RUN/text/valid.txt" --documents line \
  --vocab "$RUN/text/grammar.words" --dest "$RUN/data"

for regime in $REGIMES; do
  echo "== $regime"
  # shellcheck disable=SC2086
  unitk train --task optimus --arch optimus_tiny --arch.init-std "$INIT_STD" ${options[$regime]} \
    --data "$RUN/data" --blocks line --save-dir "$RUN/$regime" --batch-texts 64 --lr 1e-3 \
    --max-steps "$STEPS" --seed "$SEED" --precision fp32 --log-every 250 --panel-texts 1000
done
# shellcheck disable=SC2086
python3 "$here/report.py" "$RUN" $REGIMES
