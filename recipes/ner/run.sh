#!/usr/bin/env bash
# Named entities (WNUT 2017, WikiGold): a pre-trained model, the same from scratch, the most frequent
# tag, and the tag most frequent for each word.
#
#   recipes/ner/run.sh                          unitk-base-en learns the bundled samples
#   DATA=path/to/sets recipes/ner/run.sh        folders wnut17 and wikigold with files in CoNLL's columns
#   SETS=conll03 DATA=... recipes/ner/run.sh    any folder with train.conll and test.conll
#   SIZE=small recipes/ner/run.sh               pre-train a small model first, on a CPU
#   INIT=runs/x/pretrain recipes/ner/run.sh     a model that is pre-trained
#   OBJECTIVE SIZE TEXTS ROWS VOCAB BLOCK {PRETRAIN,FINETUNE}_STEPS PRETRAIN_TOKENS MAX_TOKENS LR
#   FINETUNE_LR SEED RUN: see README.md
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SIZE=${SIZE:-mini}
[ "$SIZE" = mini ] && objective=glm_infill || objective=mlm
OBJECTIVE=${OBJECTIVE:-$objective}
SETS=${SETS:-wnut17 wikigold}
RUN=${RUN:-runs/ner-$OBJECTIVE-$SIZE}
SEED=${SEED:-1}
case $SIZE in
  small) : "${FINETUNE_LR:=1e-3}" ;;
  mini) : "${FINETUNE_LR:=5e-4}" "${FINETUNE_STEPS:=200}" ;;
esac
settings
[ "$SIZE" != mini ] || optimizer=(--optimizer adamw) # Muon learns few sentences by heart sooner
sample=$here/../quickstart/data/openstax-ccby
DATA=${DATA:-$here/data}
begin "$sample/openstax.train.jsonl.gz"

for set in $SETS; do
  once "$RUN/.text.$set" python3 "$here/collect.py" "$DATA" "$RUN/text" "$set" ${ROWS:+--rows "$ROWS"}
done
beginnings "$sample/openstax.valid.jsonl.gz"
from=(--source-field words) to=(--label-field tags) asked=()
for set in $SETS; do
  labelled "$set" tags "$RUN/text/$set.train.jsonl" "$RUN/text/$set.dev.jsonl"
  learnt "$set" tag tags "$RUN/text/$set.test.jsonl"
done
# shellcheck disable=SC2086
unless_dry python3 "$here/report.py" "$RUN" $SETS
