#!/usr/bin/env bash
# ULMFiT (Howard and Ruder 2018): a language model of general text, the same on the texts of IMDb or TREC,
# and a classifier made of it; what each of these steps is worth.
#
#   DATA=path/to/sets recipes/ulmfit/run.sh         aclImdb, train_5500.label, TREC_10.label; see README.md
#   recipes/ulmfit/run.sh                           ../shared/data beside the checkout, else made-up sets
#   SETS=trec ROWS="full backward both" RUN=runs/x  some sets and rows, another place
#   SIZE=base TEXTS="a.jsonl b.jsonl"               ULMFiT's model, for a GPU; other general text
#   LABELS UNLABELLED TEST WORDS VOCAB {GENERAL,TARGET,FINETUNE}_STEPS {LM,FINETUNE,SCRATCH,SIATL}_LR SEED
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SIZE=${SIZE:-small}
SETS=${SETS:-imdb trec}
ROWS=${ROWS:-scratch no-target no-thaw full siatl}
known SETS imdb trec
known ROWS scratch no-target no-thaw full backward both siatl
SEED=${SEED:-1}
RUN=${RUN:-runs/ulmfit-$SIZE}
case $SIZE in
  small) # layers of 256, 256 and 128 cells, for which ULMFiT's dropouts are too strong
    : "${VOCAB:=5000}" "${LABELS:=500}" "${UNLABELLED:=6000}" "${TEST:=1000}" "${WORDS:=100}"
    : "${GENERAL_STEPS:=2400}" "${TARGET_STEPS:=600}" "${FINETUNE_STEPS:=96}" "${LM_TEXTS:=16}" "${BATCH:=32}"
    : "${LM_LR:=8e-3}" "${SIATL_LR:=5e-3}"
    arch=(--arch awd_lstm_small --arch.width 128 --arch.cell-width 256)
    lm=(--optimizer.betas 0.8,0.99 --clip-norm 1) # betas of imdb_scripts
    for kind in "" input- hidden- weight-; do arch+=("--arch.${kind}dropout" 0.05); done ;;
  base)
    : "${VOCAB:=30000}" "${LABELS:=100000}" "${UNLABELLED:=100000}" "${TEST:=100000}" "${WORDS:=100000}"
    : "${GENERAL_STEPS:=40000}" "${TARGET_STEPS:=10000}" "${FINETUNE_STEPS:=4000}" "${LM_TEXTS:=64}" "${BATCH:=64}"
    arch=(--arch awd_lstm) lm=() ;;
  *) echo "SIZE must be small or base, got $SIZE" >&2; exit 2 ;;
esac
whole LABELS UNLABELLED TEST WORDS VOCAB GENERAL_STEPS TARGET_STEPS FINETUNE_STEPS LM_TEXTS BATCH
rates LM_LR FINETUNE_LR SCRATCH_LR SIATL_LR
: "${LM_LR:=4e-3}" "${FINETUNE_LR:=1e-2}" "${SCRATCH_LR:=4e-3}" "${SIATL_LR:=5e-4}"
sample=$here/../quickstart/data/openstax-ccby
begin "$sample/openstax.train.jsonl.gz"
if [ -z "${DATA:-}" ]; then
  DATA=$here/../../../shared/data
  if [ ! -d "$DATA/imdb" ]; then
    DATA=$RUN/sample
    echo "DATA is not given: the sets are made up"
    once "$RUN/.sample" python3 "$here/make_sample.py" "$DATA"
  fi
fi
papers=$here/../papers
common=(--seed "$SEED" --max-tokens 8192 --writers none --log-every 50)

echo "== 1/4 texts"
own=()
for set in $SETS; do
  once "$RUN/.text.$set" python3 "$here/collect.py" "$DATA" "$RUN/text" "$set" --labels "$LABELS" \
    --unlabelled "$UNLABELLED" --test "$TEST" --words "$WORDS"
  own+=("--input=$RUN/text/$set.texts.txt")
done
once "$RUN/.vocab" unitk preprocess "${texts[@]/#/--input=}" "${own[@]}" --documents line --vocab-only \
  --vocab-kind bpe --vocab-size "$VOCAB" --vocab-sample 60000 --dest "$RUN/vocab" --overwrite
once "$RUN/.general.texts" unitk preprocess "${texts[@]/#/--input=}" --valid "$sample/openstax.valid.jsonl.gz" \
  --sentences punct --vocab "$RUN/vocab" --dest "$RUN/data/general" --overwrite
vocab=$RUN/vocab from=(--source-field text) to=(--label-field label)
for set in $SETS; do
  once "$RUN/.$set.texts" unitk preprocess --input "$RUN/text/$set.texts.txt" --valid "$RUN/text/$set.heldout.txt" \
    --documents line --vocab "$vocab" --dest "$RUN/data/$set.texts" --overwrite
  labelled "$set" class "$RUN/text/$set.train.jsonl" "$RUN/text/$set.valid.jsonl"
done

language() { # NAME DATA STEPS words...: RUN/NAME, a language model
  once "$RUN/.$1" unitk train --config "$papers/ulmfit/pretrain.yaml" "${lm[@]}" "${arch[@]}" "${@:4}" --data "$RUN/data/$2" \
    --save-dir "$RUN/$1" --resume --stateful-rows "$LM_TEXTS" --lr "$LM_LR" --max-steps "$3" \
    --valid-every "$((($3 + 2) / 3))" --valid-texts 300 "${common[@]}"
}
classifier() { # SET ROW words...: RUN/SET/ROW, a classifier
  mkdir -p "$RUN/$1"
  once "$RUN/$1/.$2" fresh "$RUN/$1/$2" unitk train "${@:3}" "${arch[@]}" --arch.bptt 70 --data "$RUN/data/$1" \
    --save-dir "$RUN/$1/$2" --batch-texts "$BATCH" --max-steps "$FINETUNE_STEPS" --max-epochs none \
    --valid-every "$(((FINETUNE_STEPS + 7) / 8))" "${common[@]}"
}
tested() { # SET ROW CHECKPOINTS...: RUN/SET/ROW.json, the scores of the test set
  local out=$RUN/$1/$2
  once "$RUN/$1/.$2.predict" fresh "$out.jsonl" unitk predict "${@:3}" --input "$RUN/text/$1.test.jsonl" \
    "${from[@]}" --output "$out.jsonl"
  said "$out.json" unitk score --metric class --hypotheses "$out.jsonl" \
    --references "$RUN/text/$1.test.jsonl" "${to[@]}" --output-format json
}

ways=("") # the names of language models end in their direction
[[ " $ROWS " != *" backward "* ]] || ways+=(.backward)
for way in "${ways[@]}"; do
  turned=(--task.backward "$([ -z "$way" ] && echo off || echo on)")
  echo "== 2/4 a language model of general text$way"
  language "general$way" general "$GENERAL_STEPS" --max-epochs none "${turned[@]}"
  for set in $SETS; do
    echo "== 3/4 the same on the texts of $set$way"
    language "$set.lm$way" "$set.texts" "$TARGET_STEPS" --max-epochs 4 --init-from "$RUN/general$way/last" "${turned[@]}"
  done
done
for set in $SETS; do
  for row in $ROWS; do
    echo "== 4/4 $set: $row"
    words=(--config "$papers/ulmfit/finetune.yaml") rate=$FINETUNE_LR
    judges=(--checkpoint "$RUN/$set/$row")
    case $row in
      scratch) words+=(--thaw none --optimizer.layer-decay 1) rate=$SCRATCH_LR ;;
      no-target) words+=(--init-from "$RUN/general/last") ;;
      no-thaw) words+=(--init-from "$RUN/$set.lm/last" --thaw none) ;;
      full) words+=(--init-from "$RUN/$set.lm/last") ;;
      backward) words+=(--init-from "$RUN/$set.lm.backward/last" --task.layout lm:opening=none,ends=off,backward=on) ;;
      both) judges=(--checkpoint "$RUN/$set/full" --checkpoint "$RUN/$set/backward") ;;
      siatl)
        words=(--config "$papers/siatl/finetune.yaml" --init-from "$RUN/general/last" --max-source-len none)
        words+=(--task.layout lm:opening=none,ends=off) rate=$SIATL_LR ;;
    esac
    [ "$row" = both ] || classifier "$set" "$row" "${words[@]}" --lr "$rate"
    tested "$set" "$row" "${judges[@]}"
  done
done
# shellcheck disable=SC2086
unless_dry python3 "$here/report.py" "$RUN" "$SETS" $ROWS
