#!/usr/bin/env bash
# Question generation: a paragraph and an answer -> the question, on SQuAD as Du et al. 2017 split it.
# Pre-train, fine-tune, generate with beam 5, score as papers do, show ten questions.
#
#   recipes/qg_squad/run.sh                      the bundled sample, from unitk-base-en, on a CPU
#   DATA=path/to/full/data FINETUNE_STEPS=5000   all pairs
#   SIZE=small OBJECTIVE=unilm ...               pre-train too: copy mlm lm unilm pmlm glm_infill mass; none: from scratch
#   SIZE=base DATA=path/to/full/data ...         base models on the full sets, in folders of the same names
#   SQUAD=DIR LISTS=DIR ...                      your train-v1.1.json and dev-v1.1.json, and doclist-*.txt
#   TEXTS="a.jsonl b.jsonl" SEED=2 RUN=runs/x .. other text to pre-train on, another seed or place
#   PAPER=unilm-squad_qg INIT=models/unilm ...  the settings of ../papers/unilm-squad_qg; DRY=1 prints the plan
#   INIT=runs/x/pretrain ...                    a model that is pre-trained, with its vocabulary
#   VOCAB BLOCK WINDOW TARGET {PRETRAIN,FINETUNE}_{STEPS,TOKENS} MAX_TOKENS LR FINETUNE_LR: see ../stages.sh
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SIZE=${SIZE:-mini}
[ "$SIZE" = small ] && objective=copy || objective=glm_infill # few updates teach nothing else to copy
OBJECTIVE=${OBJECTIVE:-$objective}
DATA=${DATA:-$here/../quickstart/data}
RUN=${RUN:-runs/qg_squad-${PAPER:-$OBJECTIVE-$SIZE}}
SEED=${SEED:-1}
if [ -n "${PAPER:-}" ]; then
  questions=$DATA/squad-v1.1-nqg-split
  given DATA "$questions"/{train,dev,test}.json.gz
  published squad_qg
  mine "$RUN"
  pairs=(--input "$questions/train.json.gz" --valid "$questions/dev.json.gz" --test "$questions/test.json.gz")
  as_published
  unless_dry python3 "$here/report.py" "$RUN" "$questions"
  exit
fi
settings
if [ "$SIZE" = base ]; then
  begin "$DATA"/openstax-ccby/*train* "$DATA"/eltec-eng/*train*
  : "${WINDOW:=460}" "${TARGET:=48}"
else
  begin "$DATA/openstax-ccby/openstax.train.jsonl.gz"
  : "${WINDOW:=$([ "$SIZE" = mini ] && echo 96 || echo 64)}" "${TARGET:=32}"
fi
SOURCE=$WINDOW questions=$DATA/squad-v1.1-nqg-split
if [ -n "${SQUAD:-}" ]; then
  questions=$RUN/squad
  once "$RUN/.split" python3 "$here/split.py" --squad "$SQUAD" \
    --lists "${LISTS:?the folder of doclist-train.txt, doclist-dev.txt and doclist-test.txt}" --dest "$questions"
fi

HELDOUT=$DATA/openstax-ccby/openstax.valid.jsonl.gz copies=answers text=()
pairs=(--input "$questions/train.json.gz" --valid "$questions/dev.json.gz"
  --test "$questions/test.json.gz" --window "$WINDOW")
search=()
stages
unless_dry python3 "$here/report.py" "$RUN" "$questions"
