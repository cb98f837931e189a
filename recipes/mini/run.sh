#!/usr/bin/env bash
# How unitk-mini-en was made: text of textbooks, novels and an encyclopedia, a stage that copies
# sentences, then blank infilling and a language model in turn.
#
#   DATA=path/to/full/data recipes/mini/run.sh       the model, in two hours of one CPU core
#   recipes/mini/run.sh                              the same on the quickstart's sample
#   COPY_STEPS=100 STEPS=1000 SEED=2 RUN=runs/x ...  another length, seed or place
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
SEED=${SEED:-1}
mine "$RUN"

echo "== 1/4 texts"
openstax=$DATA/openstax-ccby
texts=(--input "$RUN/thrice.jsonl" "$openstax/openstax.train.jsonl.gz")
for path in "$DATA"/eltec-eng/*train*; do [ ! -e "$path" ] || texts+=("$path"); done
squad=(python3 "$here/squad_text.py" --squad "$DATA/squad-v1.1-nqg-split/train.json.gz")
once "$RUN/.squad" "${squad[@]}" --dest "$RUN/squad.jsonl"
once "$RUN/.thrice" "${squad[@]}" --dest "$RUN/thrice.jsonl" --times 3 # as much as of textbooks
once "$RUN/.text" unitk preprocess "${texts[@]}" --valid "$openstax/openstax.valid.jsonl.gz" \
  --sentences punct --vocab-size 8000 --byte-fallback --dest "$RUN/text" --overwrite

echo "== 2/4 sentences to copy"
copy=(python3 "$recipes/copies.py" answers --longest 20)
once "$RUN/.copies" "${copy[@]}" --texts "$RUN/squad.jsonl" --dest "$RUN/copies.json"
once "$RUN/.heldout" "${copy[@]}" --texts "$openstax/openstax.valid.jsonl.gz" --dest "$RUN/heldout.json"
once "$RUN/.pairs" unitk preprocess --input "$RUN/copies.json" --valid "$RUN/heldout.json" \
  --window 80 --vocab "$RUN/text/train" --dest "$RUN/copies" --overwrite

train() { # STAGE words...: go on with it, or begin it
  unitk train --save-dir "$RUN/$1" --resume --arch modern_mini --arch.dropout 0 --optimizer muon \
    --batch-tokens 4096 --max-tokens 4096 --seed "$SEED" --log-every 50 --valid-every 500 \
    --valid-texts 200 "${@:2}"
}

echo "== 3/4 learn to copy"
once "$RUN/.copy" train copy --task glm_infill --data "$RUN/copies" --max-steps "$COPY_STEPS" \
  --lr 6e-3 --lr-schedule wsd:warmup=0.05,decay=0.1

echo "== 4/4 pre-train"
once "$RUN/.base" train base --task glm_infill=1 --task lm=1 --task.glm_infill.mixture 0.5,0,0.5 \
  --data "$RUN/text" --block-size 256 --init-from "$RUN/copy" --max-steps "$STEPS" --lr 5e-3 \
  --lr-schedule wsd:warmup=0.01,decay=0.3 --optimizer.weight-decay 0.05 --criterion.z-loss 1e-4
echo "$RUN/base: python3 $here/release.py makes a model with a name of it"
