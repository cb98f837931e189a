#!/usr/bin/env bash
# SQuAD: where a passage answers a question. A pre-trained model, the same from scratch, and a sentence
# of the passage.
#
#   recipes/squad/run.sh                        unitk-base-en learns the bundled sample of SQuAD 1.1
#   DATA=path/to/squad recipes/squad/run.sh     a folder with train.json and dev.json, or SQuAD's own names
#   SIZE=small recipes/squad/run.sh             pre-train a small model first, on a CPU
#   INIT=runs/x/pretrain recipes/squad/run.sh   a model that is pre-trained
#   PAPER=spanbert INIT=models/spanbert ...     the settings of ../papers/spanbert, or xlnet; DRY=1 prints the plan
#   OBJECTIVE SIZE TEXTS ROWS SOURCE VOCAB BLOCK {PRETRAIN,FINETUNE}_STEPS PRETRAIN_TOKENS MAX_TOKENS
#   LR FINETUNE_LR SEED RUN: see README.md
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SIZE=${SIZE:-mini}
[ "$SIZE" = mini ] && objective=glm_infill || objective=mlm
OBJECTIVE=${OBJECTIVE:-$objective}
RUN=${RUN:-runs/squad-${PAPER:-$OBJECTIVE-$SIZE}}
SEED=${SEED:-1}
[ -z "${PAPER:-}" ] || begins_with finetune spanbert xlnet
case $SIZE in
  base) : "${SOURCE:=381}" ;;
  mini) : "${SOURCE:=320}" "${FINETUNE_STEPS:=500}" "${FINETUNE_LR:=2e-3}" ;;
  *) : "${SOURCE:=160}" "${ROWS:=4000}" "${FINETUNE_LR:=5e-4}" "${MAX_TOKENS:=8192}" ;;
esac
settings
[ "$SIZE" != mini ] || optimizer=(--optimizer muon)
sample=$here/../quickstart/data
DATA=${DATA:-$sample/squad-v1.1-nqg-split}
begin "$sample/openstax-ccby/openstax.train.jsonl.gz"

once "$RUN/.questions" python3 "$here/collect.py" "$DATA" "$RUN/text" ${ROWS:+--rows "$ROWS"}
words=(--max-source-len "$SOURCE" --valid-texts 300 --best-metric valid/span/correct)
if [ -n "${PAPER:-}" ]; then
  words=()
  labels_as_published squad
else
  beginnings "$sample/openstax-ccby/openstax.valid.jsonl.gz"
fi
# in SQuAD 1.1 every question has an answer, though not in every window
from=() to=() asked=(--null-threshold inf)
grep -qs '"is_impossible": true' "$RUN/text/train.json" && asked=()
labelled squad span "$RUN/text/train.json" "$RUN/text/dev.json"
learnt squad span span "$RUN/text/dev.json" "${words[@]}"
unless_dry python3 "$here/report.py" "$RUN"
