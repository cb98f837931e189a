#!/usr/bin/env bash
# GLUE's small sets (CoLA, SST-2, RTE, MRPC, STS-B): a pre-trained model, the same from scratch, and
# the majority class.
#
#   DATA=path/to/GLUE recipes/glue/run.sh           folders CoLA, SST-2, ... or cola, sst2, ...; see README.md
#   recipes/glue/run.sh                             ../shared/data/nlu-small beside the checkout, else made-up sets
#   SETS="rte mrpc" OBJECTIVE=lm SEED=2 RUN=runs/x  some sets, another objective, seed or place
#   SIZE=mini recipes/glue/run.sh                   fine-tune unitk-base-en
#   TEXTS="a.jsonl b.jsonl" INIT=runs/x/pretrain    other text to pre-train on; a model that is pre-trained
#   PAPER=roberta INIT=models/roberta SETS=rte ...  the settings of ../papers/roberta; DRY=1 prints the plan
#   ROWS VOCAB BLOCK {PRETRAIN,FINETUNE}_STEPS PRETRAIN_TOKENS MAX_TOKENS LR FINETUNE_LR
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SIZE=${SIZE:-small}
[ "$SIZE" = mini ] && objective=glm_infill || objective=mlm
OBJECTIVE=${OBJECTIVE:-$objective}
SETS=${SETS:-cola sst2 rte mrpc stsb}
RUN=${RUN:-runs/glue-${PAPER:-$OBJECTIVE-$SIZE}}
SEED=${SEED:-1}
if [ -n "${PAPER:-}" ]; then
  begins_with finetune roberta albert electra ernie2
  [ -e "$paper/glue.tsv" ] || known SETS mnli
fi
[ "$SIZE" = base ] || : "${ROWS:=4000}"
[ "$SIZE" != small ] || : "${FINETUNE_LR:=5e-4}"
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
for set in $SETS; do
  once "$RUN/.text.$set" python3 "$here/collect.py" "$DATA" "$RUN/text" "$set" ${ROWS:+--rows "$ROWS"}
done
[ -n "${PAPER:-}" ] || beginnings "$sample/openstax.valid.jsonl.gz"
for set in $SETS; do
  task=classify labels=class from=(--source-field sentence1,sentence2) to=(--label-field label) asked=()
  case $set in cola | sst2) from=(--source-field sentence) ;; stsb) task=regress labels=number ;; esac
  [ -z "${PAPER:-}" ] || labels_as_published "$set"
  learnt "$set" $task $labels "$RUN/text/$set.train.jsonl" "$RUN/text/$set.dev.jsonl"
done
# shellcheck disable=SC2086
[ -n "${DRY:-}" ] || python3 "$here/report.py" "$RUN" $SETS
