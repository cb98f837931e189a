#!/usr/bin/env bash
# A small model with a teacher beside the same model alone: the same texts, updates, seed and rate. The
# teacher is a larger model, trained here on the same texts.
#
#   recipes/distill/run.sh                                      the bundled sample, tiny models, minutes
#   SETTING=gpu DATA=path/to/full/data recipes/distill/run.sh   a student of 5 M, a teacher of 31 M parameters
#   ROWS="alone logits" SEED=2 RUN=runs/mine ...                some rows, another seed
#
# What is finished is not done again, and what was cut short goes on: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SETTING=${SETTING:-tiny}
DATA=${DATA:-$here/../quickstart/data}
RUN=${RUN:-runs/distill-$SETTING}
SEED=${SEED:-1}
ROWS=${ROWS:-alone logits states attention}
TASK=${TASK:-lm}
case $SETTING in
  tiny) # to see that it works
    student=(--arch modern_tiny) teacher=(--arch modern_tiny --arch.num-layers 4 --arch.width 128 --arch.ffn-width 352)
    : "${STEPS:=120}" "${TEACHER_STEPS:=240}" "${BLOCK:=64}" "${BATCH:=2048}" "${WIDE:=128}" "${LR:=5e-3}" ;;
  gpu) # 29 M tokens a row, as in recipes/compare
    student=(--arch modern_mini) teacher=(--arch modern_small)
    : "${STEPS:=1800}" "${TEACHER_STEPS:=3600}" "${BLOCK:=256}" "${BATCH:=16384}" "${WIDE:=384}" "${LR:=5e-3}" ;;
  *) echo "SETTING must be tiny or gpu, got $SETTING" >&2; exit 2 ;;
esac
whole STEPS TEACHER_STEPS BLOCK BATCH WIDE
: "${MAX_TOKENS:=$BATCH}"
begin "$DATA/openstax-ccby/openstax.train.jsonl.gz"
once "$RUN/.data" unitk preprocess "${texts[@]/#/--input=}" --sentences punct --vocab unitk-base-en \
  --valid "$DATA/openstax-ccby/openstax.valid.jsonl.gz" --dest "$RUN/data" --overwrite

common=(--task "$TASK" --arch.dropout 0 --data "$RUN/data/train" --valid "$RUN/data/valid" --block-size "$BLOCK"
  --batch-tokens "$BATCH" --max-tokens "$MAX_TOKENS" --optimizer muon --lr "$LR" --seed "$SEED" --valid-texts 200
  --lr-schedule wsd:warmup=0.05,decay=0.3 --keep-last 1 --writers none --resume)
trained() { # NAME UPDATES options: pre-train, with two lines of validation
  echo "== $1"
  once "$RUN/.$1" unitk train "${common[@]}" --max-steps "$2" --valid-every "$((($2 + 1) / 2))" \
    --save-dir "$RUN/rows/$1" "${@:3}"
}

trained teacher "$TEACHER_STEPS" "${teacher[@]}"
learns=(--criterion distill --criterion.teacher "$RUN/rows/teacher")
for row in $ROWS; do
  case $row in
    alone) more=() ;;
    logits) more=("${learns[@]}") ;;
    states) # through a map from the student's width to the teacher's
      more=("${learns[@]}" --criterion.states-weight 1 --criterion.states-loss normed --arch.heads "project:states:$WIDE") ;;
    attention) more=("${learns[@]}" --criterion.attention-weight 1) ;;
    *) echo "ROWS: there is no $row (alone, logits, states, attention)" >&2; exit 2 ;;
  esac
  trained "$row" "$STEPS" "${student[@]}" "${more[@]}"
done
unless_dry python3 "$here/report.py" "$RUN"
