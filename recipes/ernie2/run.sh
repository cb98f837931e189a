#!/usr/bin/env bash
# ERNIE 2.0: continual multi-task learning beside plain multi-task and plain continual learning.
#
#   recipes/ernie2/run.sh                       the bundled sample, some updates: to see that it works
#   SETTING=cpu TEXTS=train.jsonl.gz HELDOUT=valid.jsonl.gz recipes/ernie2/run.sh   400 updates of 64 short texts
#   SETTING=gpu TEXTS=train.jsonl.gz HELDOUT=valid.jsonl.gz recipes/ernie2/run.sh   1,500 updates of 64 texts, on a GPU
#   ROWS="multitask sequential" STEPS=500 SEED=2 RUN=runs/mine ...
#
# What is finished is not done again, and training goes on: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SETTING=${SETTING:-tiny}
SEED=${SEED:-1}
PRECISION=${PRECISION:-auto}
OBJECTIVES=${OBJECTIVES:-knowledge,capital,document,order,distance,discourse}
# an objective's name is the row that learns it alone, in as many updates as its share of the others
ROWS=${ROWS:-multitask sequential continual scratch distance discourse}
# shellcheck disable=SC2086
known ROWS multitask sequential continual scratch ${OBJECTIVES//,/ }
case $SETTING in
  tiny) : "${STEPS:=12}" "${BATCH:=4}" "${LR:=2e-4}" "${BLOCK:=64}" ;;
  cpu) : "${STEPS:=400}" "${BATCH:=64}" "${LR:=5e-4}" "${BLOCK:=64}" ;;
  gpu) : "${STEPS:=1500}" "${BATCH:=64}" "${LR:=5e-4}" "${BLOCK:=128}" ;;
  *) echo "SETTING must be tiny, cpu or gpu, got $SETTING" >&2; exit 2 ;;
esac
RUN=${RUN:-runs/ernie2-$SETTING}
sample=$here/../quickstart/data/openstax-ccby
begin "$sample/openstax.train.jsonl.gz"
HELDOUT=${HELDOUT:-$sample/openstax.valid.jsonl.gz}

echo "== 1/3 preprocess"
once "$RUN/.data" unitk preprocess "${texts[@]/#/--input=}" --valid "$HELDOUT" --sentences punct --vocab unitk-base-en \
  --dest "$RUN/data" --overwrite
number=$(tr , '\n' <<<"$OBJECTIVES" | wc -l)
embeddings=(--arch.num-segments 4 --arch.num-tasks 16)
architecture=$(python3 "$recipes/scratch.py" unitk-base-en | sed -n '/^--arch/ { /num-segments\|num-tasks/! p }')
mapfile -t fresh <<<"$architecture"
for row in $ROWS; do
  echo "== 2/3 train: $row"
  learning=multitask objectives=$OBJECTIVES steps=$STEPS begins=(--init-from unitk-base-en)
  case $row in
    multitask | sequential | continual) learning=$row ;;
    scratch) begins=("${fresh[@]}") ;;
    *) objectives=$row steps=$((STEPS < number ? 1 : STEPS / number)) ;;
  esac
  once "$RUN/.$row" unitk train --task ernie2 --task.learning "$learning" --task.objectives "$objectives" "${begins[@]}" "${embeddings[@]}" \
    --data "$RUN/data" --save-dir "$RUN/$row" --resume --block-size "$BLOCK" --batch-texts "$BATCH" --max-tokens 8192 \
    --optimizer adamw --max-steps "$steps" --lr "$LR" --lr-schedule linear:warmup=0.1 --valid-every "$steps" --seed "$SEED" \
    --precision "$PRECISION" --log-every 50 --writers none
done
echo "== 3/3 report"
# shellcheck disable=SC2086
unless_dry python3 "$here/report.py" "$RUN" $ROWS
