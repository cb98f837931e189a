#!/usr/bin/env bash
# GLUE's small sets (CoLA, SST-2, RTE, MRPC, STS-B): a pre-trained model, the same from scratch, and
# the majority class.
#
#   DATA=path/to/GLUE recipes/glue/run.sh           folders CoLA, SST-2, ... or cola, sst2, ...; see README.md
#   recipes/glue/run.sh                             ../shared/data/nlu-small beside the checkout, else made-up sets
#   SETS="rte mrpc" OBJECTIVE=lm SEED=2 RUN=runs/x  some sets, another objective, seed or place
#   TEXTS="a.jsonl b.jsonl" INIT=runs/x/pretrain    other text to pre-train on; a model that is pre-trained
#   ROWS VOCAB BLOCK {PRETRAIN,FINETUNE}_STEPS PRETRAIN_TOKENS MAX_TOKENS LR FINETUNE_LR
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SIZE=${SIZE:-small}
OBJECTIVE=${OBJECTIVE:-mlm}
SETS=${SETS:-cola sst2 rte mrpc stsb}
RUN=${RUN:-runs/glue-$OBJECTIVE-$SIZE}
SEED=${SEED:-1}
[ "$SIZE" = base ] || : "${ROWS:=4000}" "${FINETUNE_LR:=5e-4}"
settings
sample=$here/../quickstart/data/openstax-ccby
begin "$sample/openstax.train.jsonl.gz"
if [ -z "${DATA:-}" ]; then
  DATA=$here/../../../shared/data/nlu-small
  if [ ! -d "$DATA" ]; then
    DATA=$RUN/sample
    echo "DATA is not given: the sets are made up"
    once "$RUN/.sample" python3 "$here/make_sample.py" "$DATA"
  fi
fi
common=(--seed "$SEED" --lr-schedule linear:warmup=0.1 --max-tokens "$MAX_TOKENS" --log-every 50)
form=(--arch "$(arch_of "$OBJECTIVE" "$SIZE")" "${model[@]}")

echo "== 1/3 texts"
# shellcheck disable=SC2086
once "$RUN/.sets" python3 "$here/collect.py" "$DATA" "$RUN/text" $SETS ${ROWS:+--rows "$ROWS"}
if [ -z "${INIT:-}" ]; then
  once "$RUN/.text" unitk preprocess "${texts[@]/#/--input=}" --valid "$sample/openstax.valid.jsonl.gz" \
    --sentences punct --vocab-size "$VOCAB" --byte-fallback --dest "$RUN/data/text" --overwrite
fi
vocab=${INIT:-$RUN/data/text/train}

if [ -n "${INIT:-}" ]; then
  echo "== 2/3 pre-trained: $INIT"
  init=(--init-from "$INIT")
else
  echo "== 2/3 pre-train: $OBJECTIVE"
  pretrain --task "$OBJECTIVE" --arch "$(arch_of "$OBJECTIVE" "$SIZE")" --data "$RUN/data/text" --block-size "$BLOCK"
fi

judged() { # ROW: its figures, of what it predicts of the dev set
  once "$RUN/$set/.$1.predict" fresh "$RUN/$set/$1.jsonl" unitk predict --checkpoint "$RUN/$set/$1" \
    --input "$RUN/text/$set.dev.jsonl" "${fields[@]}" --truncate --output "$RUN/$set/$1.jsonl"
  unitk score --metric "$labels" --hypotheses "$RUN/$set/$1.jsonl" --references "$RUN/text/$set.dev.jsonl" \
    --output-format json >"$RUN/$set/$1.json"
}

for set in $SETS; do
  echo "== 3/3 $set"
  task=classify labels=class fields=(--source-field sentence1,sentence2)
  case $set in cola | sst2) fields=(--source-field sentence) ;; stsb) task=regress labels=number ;; esac
  once "$RUN/.$set" unitk preprocess --input "$RUN/text/$set.train.jsonl" --valid "$RUN/text/$set.dev.jsonl" \
    "${fields[@]}" --label-field label --labels "$labels" --vocab "$vocab" --dest "$RUN/data/$set" --overwrite
  mkdir -p "$RUN/$set"
  for row in scratch pretrained; do
    begins=("${init[@]}")
    [ $row = pretrained ] || begins=(--task.layout "$OBJECTIVE" "${form[@]}")
    once "$RUN/$set/.$row" fresh "$RUN/$set/$row" unitk train --task $task "${begins[@]}" --data "$RUN/data/$set" \
      --save-dir "$RUN/$set/$row" --batch-texts 32 --max-steps "$FINETUNE_STEPS" --lr "$FINETUNE_LR" \
      --valid-every "$(((FINETUNE_STEPS + 3) / 4))" "${common[@]}"
    judged $row
  done
done
# shellcheck disable=SC2086
python3 "$here/report.py" "$RUN" $SETS
