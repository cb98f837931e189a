#!/usr/bin/env bash
# Optimizers and stacks at one small budget: the same texts, updates, slots and seed in every row.
#
#   recipes/ablation/run.sh                                  OpenStax if DATA names it, else the bundled sample
#   DATA=path/to/full/data recipes/ablation/run.sh           all of OpenStax
#   ROWS="lm/gpt2_mini/muon/4e-3 ..." SEED=2 RUN=runs/mine   some rows (task/arch/optimizer/rate), another seed
#   ROWS="lm/modern_mini/muon/4e-3/qk-norm=off ..."          with options of --arch, by commas
#   ROWS="lm/gpt2_mini/muon/4e-3@280 ..."                    with updates of its own
#
# What is finished is not done again, and what was cut short goes on: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

DATA=${DATA:-$here/../quickstart/data}
RUN=${RUN:-runs/ablation}
SEED=${SEED:-1}
: "${VOCAB:=8000}" "${STEPS:=800}" "${MAX_TOKENS:=4096}" "${VALID_TEXTS:=100}"
: "${SCHEDULE:=linear:warmup=0.06}"
if [ -z "${ROWS:-}" ]; then
  ROWS="lm/gpt2_mini/adamw/2e-3 lm/gpt2_mini/muon/4e-3 lm/gpt2_mini/muon/4e-3/init-std=0.02"
  ROWS+=" lm/gpt2_mini/adamw/4e-3 lm/gpt2_mini/adamw/1e-3 lm/modern_mini/muon/4e-3 lm/modern_mini/muon/8e-3"
  for pair in mlm/bert_small glm_infill/glm_small unilm/unilm_small pmlm/unilm2_small mass/mass_small; do
    ROWS+=" $pair/adamw/2e-3 $pair/muon/4e-3"
  done
fi
begin "$DATA/openstax-ccby/openstax.train.jsonl.gz"
once "$RUN/.data" unitk preprocess "${texts[@]/#/--input=}" --sentences punct --vocab-size "$VOCAB" \
  --valid "$DATA/openstax-ccby/openstax.valid.jsonl.gz" --dest "$RUN/data" --overwrite

for row in $ROWS; do
  IFS=@ read -r settings updates <<<"$row"
  IFS=/ read -r task arch optimizer rate change <<<"$settings"
  : "${updates:=$STEPS}"
  IFS=, read -ra changes <<<"$change"
  echo "== $row"
  once "$RUN/.${row//\//.}" unitk train --task "$task" --arch "$arch" --optimizer "$optimizer" --lr "$rate" \
    --arch.dropout 0 --arch.attention-dropout 0 --arch.activation-dropout 0 --data "$RUN/data" \
    "${changes[@]/#/--arch.}" --lr-schedule "$SCHEDULE" --max-steps "$updates" --batch-tokens "$MAX_TOKENS" --max-tokens "$MAX_TOKENS" \
    --seed "$SEED" --valid-every "$(((updates + 19) / 20))" --valid-texts "$VALID_TEXTS" --save-every 50 \
    --keep-last 1 --writers none --save-dir "$RUN/rows/${row//\//.}" --resume
done
unless_dry python3 "$here/report.py" "$RUN"
