#!/usr/bin/env bash
# How unitk-mini-en was made: text of textbooks, novels and an encyclopedia. A stage copies sentences.
# Then blank infilling and a language model take turns, before and between questions that rules make.
#
#   DATA=path/to/full/data recipes/mini/run.sh       the model, in three hours of one CPU core
#   recipes/mini/run.sh                              the same on the quickstart's sample
#   COPY_STEPS=100 STEPS=1000 ASK_STEPS=50 MORE_STEPS=500 SEED=2 RUN=runs/x ...  other lengths
#
# DATA holds squad-v1.1-nqg-split/, openstax-ccby/ and, if there are novels, eltec-eng/.
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

DATA=${DATA:-$here/../quickstart/data}
RUN=${RUN:-runs/mini}
COPY_STEPS=${COPY_STEPS:-1000}
STEPS=${STEPS:-6000}
ASK_STEPS=${ASK_STEPS:-500}
MORE_STEPS=${MORE_STEPS:-4500}
SEED=${SEED:-1}
openstax=$DATA/openstax-ccby
given DATA "$DATA/squad-v1.1-nqg-split/train.json.gz" "$openstax"/openstax.{train,valid}.jsonl.gz
mine "$RUN"

echo "== 1/7 texts"
texts=(--input "$RUN/thrice.jsonl" "$openstax/openstax.train.jsonl.gz")
for path in "$DATA"/eltec-eng/*train*; do [ ! -e "$path" ] || texts+=("$path"); done
squad=(python3 "$here/squad_text.py" --squad "$DATA/squad-v1.1-nqg-split/train.json.gz")
once "$RUN/.squad" "${squad[@]}" --dest "$RUN/squad.jsonl"
once "$RUN/.thrice" "${squad[@]}" --dest "$RUN/thrice.jsonl" --times 3 # as much as of textbooks
once "$RUN/.text" unitk preprocess "${texts[@]}" --valid "$openstax/openstax.valid.jsonl.gz" \
  --sentences punct --vocab-size 8000 --byte-fallback --dest "$RUN/text" --overwrite

echo "== 2/7 sentences to copy"
copy=(python3 "$recipes/copies.py" answers --longest 20)
once "$RUN/.copies" "${copy[@]}" --texts "$RUN/squad.jsonl" --dest "$RUN/copies.json"
once "$RUN/.heldout" "${copy[@]}" --texts "$openstax/openstax.valid.jsonl.gz" --dest "$RUN/heldout.json"
once "$RUN/.pairs" unitk preprocess --input "$RUN/copies.json" --valid "$RUN/heldout.json" \
  --window 80 --vocab "$RUN/text/train" --dest "$RUN/copies" --overwrite

train() { # STAGE SEED words...: go on with it, or begin it
  once "$RUN/.$1" unitk train --save-dir "$RUN/$1" --resume --arch modern_mini --arch.dropout 0 \
    --optimizer muon --batch-tokens 4096 --max-tokens 4096 --seed "$2" --log-every 50 --valid-every 500 \
    --valid-texts 200 "${@:3}"
}
read_texts() { # STAGE SEED FROM STEPS SCHEDULE: blank infilling and a language model in turn
  train "$1" "$2" --task glm_infill=1 --task lm=1 --task.glm_infill.mixture 0.5,0,0.5 --data "$RUN/text" \
    --block-size 256 --init-from "$RUN/$3" --max-steps "$4" --lr 5e-3 --lr-schedule "$5" \
    --optimizer.weight-decay 0.05 --criterion.z-loss 1e-4
}

echo "== 3/7 learn to copy"
train copy "$SEED" --task glm_infill --data "$RUN/copies" --max-steps "$COPY_STEPS" \
  --lr 6e-3 --lr-schedule wsd:warmup=0.05,decay=0.1

echo "== 4/7 pre-train"
read_texts base "$SEED" copy "$STEPS" wsd:warmup=0.01,decay=0.3

echo "== 5/7 learn to ask, from rules"
asked() { once "$RUN/.$1" python3 "$here/by_rule.py" --texts "$2" --times "$3" --dest "$RUN/$1.json"; }
asked rules-squad "$RUN/squad.jsonl" 3
asked rules-openstax "$openstax/openstax.train.jsonl.gz" 2
asked rules-valid "$openstax/openstax.valid.jsonl.gz" 1
once "$RUN/.asked" unitk preprocess --input "$RUN/rules-squad.json" "$RUN/rules-openstax.json" \
  --valid "$RUN/rules-valid.json" --window 48 --vocab "$RUN/text/train" --dest "$RUN/asked" --overwrite
ask() { # STAGE SEED FROM: learn the questions
  train "$1" "$2" --task glm_infill --data "$RUN/asked" --init-from "$RUN/$3" --max-steps "$ASK_STEPS" \
    --criterion.label-smoothing 0.1 --max-source-len 128 --max-target-len 32 --lr 3e-3 \
    --lr-schedule linear:warmup=0.06
}
ask ask "$SEED" base

echo "== 6/7 pre-train further"
read_texts more "$((SEED + 1))" ask "$MORE_STEPS" wsd:warmup=0.02,decay=0.4

echo "== 7/7 learn to ask again"
ask asking "$((SEED + 1))" more
echo "$RUN/more and $RUN/asking: python3 $here/release.py makes a model with a name of them"
