#!/usr/bin/env bash
# The same texts, model size, texts an update and fine-tuning pairs for every objective, and for no
# pre-training: one table and one chart.
#
#   recipes/compare/run.sh                                   the bundled sample, 2 CPU cores
#   SETTING=gpu DATA=path/to/full/data recipes/compare/run.sh   base models on the full sets
#   OBJECTIVES="unilm pmlm" SEED=2 RUN=runs/mine ...         some of them, another seed or place
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SETTING=${SETTING:-cpu}
DATA=${DATA:-$here/../quickstart/data}
RUN=${RUN:-runs/compare-$SETTING}
SEED=${SEED:-1}
OBJECTIVES=${OBJECTIVES:-mlm lm unilm pmlm glm_infill mass}
case $SETTING in
  cpu) # models of 256; a run takes one to three minutes
    size=small
    begin "$DATA/openstax-ccby/openstax.train.jsonl.gz"
    : "${VOCAB:=8000}" "${BLOCK:=128}" "${PRETRAIN_STEPS:=200}" "${PRETRAIN_TEXTS:=32}"
    : "${FINETUNE_STEPS:=200}" "${FINETUNE_TEXTS:=16}" "${MAX_TOKENS:=4096}" "${LR:=5e-4}" "${BEAM:=1}"
    ;;
  gpu) # base models on OpenStax and English novels, all SQuAD training paragraphs
    size=base
    begin "$DATA"/openstax-ccby/*train* "$DATA"/eltec-eng/*train*
    : "${VOCAB:=30000}" "${BLOCK:=256}" "${PRETRAIN_STEPS:=20000}" "${PRETRAIN_TEXTS:=128}"
    : "${FINETUNE_STEPS:=10000}" "${FINETUNE_TEXTS:=64}" "${MAX_TOKENS:=32768}" "${LR:=2e-4}" "${BEAM:=5}"
    ;;
  *) echo "SETTING must be cpu or gpu, got $SETTING" >&2; exit 2 ;;
esac
SIZE=${SIZE:-$size}
questions=$DATA/squad-v1.1-nqg-split

train() { # DIR words...: a run that is finished, continued or begun
  local dir=$1
  shift
  [ -e "$dir/finished" ] && return
  unitk train --save-dir "$dir" --resume --seed "$SEED" --max-tokens "$MAX_TOKENS" \
    --lr "$LR" --lr-schedule linear:warmup=0.1 --log-every 50 "$@"
  touch "$dir/finished"
}

finetune() { # DIR TASK words...: fine-tune, write the test questions
  local dir=$1 task=$2
  shift 2
  # --init-from is for the beginning of a run only: what was cut short begins again
  [ -e "$dir/written.jsonl" ] && return
  rm -rf "$dir"
  unitk train --save-dir "$dir" --task "$task" --data "$RUN/data/questions" --seed "$SEED" \
    --max-tokens "$MAX_TOKENS" --lr "$LR" --lr-schedule linear:warmup=0.1 --log-every 50 \
    --max-steps "$FINETUNE_STEPS" --batch-texts "$FINETUNE_TEXTS" --max-source-len 224 \
    --max-target-len 32 --valid-every "$(((FINETUNE_STEPS + 1) / 2))" "$@"
  unitk generate --checkpoint "$dir" --input "$RUN/data/questions/test" --beam "$BEAM" --max-len 32 --truncate --max-source-len 224 \
    --output-format jsonl --output "$dir/part.jsonl"
  mv "$dir/part.jsonl" "$dir/written.jsonl"
}

if [ ! -e "$RUN/data/finished" ]; then
  rm -rf "$RUN/data"
  unitk preprocess "${texts[@]/#/--input=}" --valid "$DATA/openstax-ccby/openstax.valid.jsonl.gz" \
    --sentences punct --vocab-size "$VOCAB" --byte-fallback --dest "$RUN/data/text"
  unitk preprocess --input "$questions/train.json.gz" --valid "$questions/dev.json.gz" \
    --test "$questions/test.json.gz" --window 224 --vocab "$RUN/data/text/train" --dest "$RUN/data/questions"
  touch "$RUN/data/finished"
fi

for objective in $OBJECTIVES; do
  task=$(finetuned_as "$objective") arch=$(arch_of "$objective" "$SIZE")
  echo "== $objective: pre-train, then fine-tune as $task"
  train "$RUN/$objective/pretrain" --task "$objective" --arch "$arch" --data "$RUN/data/text" \
    --block-size "$BLOCK" --max-steps "$PRETRAIN_STEPS" --batch-texts "$PRETRAIN_TEXTS" \
    --valid-every "$PRETRAIN_STEPS"
  finetune "$RUN/$objective/finetune" "$task" --init-from "$RUN/$objective/pretrain/last"
done
for task in $OBJECTIVES seq2seq; do # mlm's models are those of unilm
  [ "$(finetuned_as "$task")" = "$task" ] || continue
  echo "== $task without pre-training"
  finetune "$RUN/scratch/$task" "$task" --arch "$(arch_of "$task" "$SIZE")"
done
python3 "$here/report.py" "$RUN"
