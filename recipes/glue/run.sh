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
#   TOGETHER=1 recipes/glue/run.sh                  also all sets at once, and each after that (MT-DNN)
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
case $SIZE in
  small) : "${FINETUNE_LR:=5e-4}" ;;
  mini) : "${FINETUNE_LR:=1e-3}" "${FINETUNE_STEPS:=200}" ;; # as `unitk train --config classify`
esac
settings
[ "$SIZE" != mini ] || optimizer=(--optimizer adamw)
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
if [ "$SIZE-${INIT:-}" = mini-unitk-base-en ]; then # of its two objectives, the one that learns labels better
  init+=(--task.layout lm) scratch=("${scratch[@]/#--task.layout=*/--task.layout=lm}")
fi
for set in $SETS; do
  task=classify labels=class from=(--source-field sentence1,sentence2) to=(--label-field label) asked=()
  case $set in cola | sst2) from=(--source-field sentence) ;; stsb) task=regress labels=number ;; esac
  [ -z "${PAPER:-}" ] || labels_as_published "$set"
  labelled "$set" $labels "$RUN/text/$set.train.jsonl" "$RUN/text/$set.dev.jsonl"
  learnt "$set" $task $labels "$RUN/text/$set.dev.jsonl"
done
if [ -n "${TOGETHER:-}" ]; then # MT-DNN: all sets at once, a head each; then each goes on by itself
  [ -z "${PAPER:-}" ] || { echo "TOGETHER: PAPER has no settings for all sets at once" >&2; exit 2; }
  data=() count=0
  for set in $SETS; do data+=(--data "$RUN/data/$set") count=$((count + 1)); done
  updates=$((FINETUNE_STEPS * count))
  echo "== together"
  once "$RUN/.together" fresh "$RUN/together" unitk train --task mtdnn "${init[@]}" "${optimizer[@]}" "${data[@]}" \
    --save-dir "$RUN/together" --batch-texts 32 --max-steps "$updates" --lr "$FINETUNE_LR" \
    --valid-every "$(((updates + 3) / 4))" --data-exponent "${EXPONENT:-1}" "${common[@]}"
  for set in $SETS; do
    labels=class from=(--source-field sentence1,sentence2) to=(--label-field label) best=(--best-metric "$set/labels/correct")
    case $set in cola | sst2) from=(--source-field sentence) ;; stsb) labels=number best=() ;; esac
    once "$RUN/$set/.together.predict" fresh "$RUN/$set/together.jsonl" unitk predict --checkpoint "$RUN/together/last" \
      --task.corpus "$set" --input "$RUN/text/$set.dev.jsonl" "${from[@]}" --truncate --output "$RUN/$set/together.jsonl"
    said "$RUN/$set/together.json" unitk score --metric $labels --hypotheses "$RUN/$set/together.jsonl" \
      --references "$RUN/text/$set.dev.jsonl" "${to[@]}" --output-format json
    asked=()
    judged "$set" "$RUN/$set/alone" mtdnn $labels "$RUN/text/$set.dev.jsonl" --init-from "$RUN/together/last" \
      "${optimizer[@]}" "${best[@]}"
  done
fi
# shellcheck disable=SC2086
unless_dry python3 "$here/report.py" "$RUN" $SETS
