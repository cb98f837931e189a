#!/usr/bin/env bash
# What a causal model is worth to other objectives: the same model trained as `lm` first, then with each of
# them, beside the same objective from fresh weights.
#
#   recipes/adapt/run.sh                             qwen3_tiny on the bundled sample, minutes
#   SETTING=small recipes/adapt/run.sh               2 layers of 128 on the same sample, 15 minutes of one core
#   SETTING=cpu DATA=my.txt VALID=more.txt ...       qwen3_mini, 16 M tokens of lm and 8 M of each, days
#   ROWS="mdlm bd3lm" RUN=runs/mine ...              some objectives
#
# What is finished is not done again, and training goes on: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SETTING=${SETTING:-tiny}
sample=$here/../quickstart/data/openstax-ccby/openstax
DATA=${DATA:-$sample.train.jsonl.gz}
VALID=${VALID:-$sample.valid.jsonl.gz}
RUN=${RUN:-runs/adapt-$SETTING}
ROWS=${ROWS:-mlm mdlm bd3lm glm_infill ul2 unilm}
model=()
case $SETTING in
  tiny) : "${ARCH:=qwen3_tiny}" "${VOCAB:=1000}" "${BLOCK:=64}" "${LM:=20}" "${STEPS:=10}" "${TOKENS:=1024}" ;;
  small)
    model=(--arch.num-layers 2 --arch.width 128 --arch.ffn-width 352)
    : "${ARCH:=qwen3_mini}" "${VOCAB:=2000}" "${BLOCK:=128}" "${LM:=600}" "${STEPS:=250}" "${TOKENS:=2048}" ;;
  cpu) : "${ARCH:=qwen3_mini}" "${VOCAB:=8000}" "${BLOCK:=256}" "${LM:=4000}" "${STEPS:=2000}" "${TOKENS:=4096}" ;;
  *) echo "SETTING must be tiny, small or cpu, got $SETTING" >&2; exit 2 ;;
esac
: "${LR:=4e-3}" "${ADAPT_LR:=2e-3}"
given DATA "$DATA"
given VALID "$VALID"
whole VOCAB BLOCK LM STEPS TOKENS
mine "$RUN"

objective() { # NAME: its options
  case $1 in
    mlm) echo "--task mlm --task.shift on" ;;
    mdlm) echo "--task mdlm --task.shift on --task.future constant:value=1,warmup=0.5" ;;
    bd3lm) echo "--task bd3lm --task.shift on --task.block-length 4" ;;
    unilm) echo "--task unilm --task.nsp off" ;;
    glm_infill) echo "--task glm_infill" ;;
    ul2) echo "--task ul2 --task.towers one" ;;
    *) echo "ROWS: there is no objective $1" >&2; exit 2 ;;
  esac
}
train() { # NAME STEPS LR words...
  once "$RUN/.$1" unitk train --save-dir "$RUN/$1" --resume --data "$RUN/data" --block-size "$BLOCK" --max-tokens "$TOKENS" \
    --optimizer muon --max-steps "$2" --lr "$3" --log-every 50 --valid-every $((($2 + 9) / 10)) --valid-texts 100 --save-every 500 "${@:4}"
}

once "$RUN/.data" unitk preprocess --input "$DATA" --valid "$VALID" --sentences punct --vocab-size "$VOCAB" --byte-fallback \
  --dest "$RUN/data" --overwrite
train lm "$LM" "$LR" --task lm --arch "$ARCH" "${model[@]}"
for name in $ROWS; do
  read -ra words <<<"$(objective "$name")"
  train "$name-scratch" "$STEPS" "$LR" "${words[@]}" --arch "$ARCH" "${model[@]}"
  train "$name-adapted" "$STEPS" "$ADAPT_LR" "${words[@]}" --init-from "$RUN/lm"
done
unless_dry python3 "$here/curves.py" "$RUN" $ROWS
