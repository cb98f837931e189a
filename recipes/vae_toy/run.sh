#!/usr/bin/env bash
# When does a text autoencoder use its latent? Three ways to train the same one, minutes on a CPU.
#
#   recipes/vae_toy/run.sh
#   REGIMES="constant autoencoder" STEPS=500 RUN=runs/x recipes/vae_toy/run.sh
#
# What is finished is not done again, and training goes on: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

REGIMES=${REGIMES:-constant constant_threshold cyclical_threshold}
STEPS=${STEPS:-1500}
SEED=${SEED:-1}
# 0.02, made for 768 dimensions, is lost in the noise of a draw where there are 64
INIT_STD=${INIT_STD:-0.1}
RUN=${RUN:-runs/vae_toy}

declare -A regimes=(
  [constant]="--criterion.beta 1 --criterion.kl-mode sum"
  [constant_threshold]="--criterion.beta 1 --criterion.kl-threshold 0.5"
  [cyclical_threshold]="--criterion.beta cyclical:cycles=1 --criterion.kl-threshold 0.5"
  [autoencoder]="--criterion.beta 0"
)
known REGIMES "${!regimes[@]}"
mine "$RUN"
once "$RUN/.text" python3 "$here/make_data.py" "$RUN/text"
once "$RUN/.data" unitk preprocess --input "$RUN/text/train.txt" --valid "$RUN/text/valid.txt" --documents line \
  --vocab "$RUN/text/grammar.words" --dest "$RUN/data" --overwrite

for regime in $REGIMES; do
  echo "== $regime"
  # shellcheck disable=SC2086
  once "$RUN/.$regime" unitk train --task optimus --arch optimus_tiny --arch.init-std "$INIT_STD" ${regimes[$regime]} \
    --data "$RUN/data" --blocks line --save-dir "$RUN/$regime" --resume --batch-texts 64 --lr 1e-3 \
    --max-steps "$STEPS" --seed "$SEED" --precision fp32 --log-every 250 --panel-texts 1000
done
# shellcheck disable=SC2086
unless_dry python3 "$here/report.py" "$RUN" $REGIMES
