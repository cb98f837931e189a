#!/usr/bin/env bash
# How unitk-base-en was made: textbooks, an encyclopedia, stories and novels, read by a language model
# that fills blanks in between, in two rounds whose rate falls to zero. The second has fewer novels.
#
#   DATA=path/to/full/data recipes/mini/run.sh         the model, in four minutes of an H200
#   DEVICE=cpu MORE="--batch-tokens 4096 --max-tokens 4096" STEPS=18700 STEPS2=6600 ...   days of a core
#   ARCH=qwen3_mini STEPS=300 STEPS2=100 SEED=2 RUN=runs/x ...   another size, length, seed or place
#
# DATA holds squad-v1.1-nqg-split/, openstax-ccby/, stories/ and eltec-eng/. What is finished is not
# done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

RUN=${RUN:-runs/base}
: "${ARCH:=qwen3_15m}" "${STEPS:=1562}" "${STEPS2:=560}" "${SEED:=1}" "${DEVICE:=auto}" "${VOCAB:=8000}"
: "${LM:=3}" "${INFILL:=1}" "${MORE:=--batch-tokens 49152 --max-tokens 49152}"
given DATA "$DATA/squad-v1.1-nqg-split/train.json.gz" "$DATA"/openstax-ccby/openstax.{train,valid}.jsonl.gz \
  "$DATA"/stories/stories.{train,valid}.jsonl.gz "$DATA"/eltec-eng/eltec-eng.{train,valid}.jsonl.gz
mine "$RUN"

echo "== 1/3 texts"
modern=("$RUN/squad.jsonl" "$DATA/openstax-ccby/openstax.train.jsonl.gz" "$DATA/stories/stories.train.jsonl.gz")
once "$RUN/.squad" python3 "$here/squad_text.py" --squad "$DATA/squad-v1.1-nqg-split/train.json.gz" --dest "$RUN/squad.jsonl"
text() { # NAME inputs...: a corpus, in the vocabulary of the modern texts
  once "$RUN/.$1" unitk preprocess --input "${@:2}" --sentences punct --dest "$RUN/$1" --overwrite "${vocab[@]}"
}
vocab=(--vocab-size "$VOCAB" --byte-fallback --valid "$DATA/openstax-ccby/openstax.valid.jsonl.gz")
text modern "${modern[@]}"
vocab=(--vocab "$RUN/modern/train" --valid "$DATA/stories/stories.valid.jsonl.gz")
text stories "$DATA/stories/stories.train.jsonl.gz"
vocab=(--vocab "$RUN/modern/train" --valid "$DATA/eltec-eng/eltec-eng.valid.jsonl.gz")
text novels "$DATA/eltec-eng/eltec-eng.train.jsonl.gz"
# two chapters of five
some=$RUN/some.jsonl
once "$RUN/.chapters" sh -c "gzip -dc '$DATA/eltec-eng/eltec-eng.train.jsonl.gz' | awk 'NR % 5 < 2' >'$some'"
text some "$some"

read_texts() { # STAGE STEPS words...: go on with it, or begin it
  # stories count three times
  once "$RUN/.$1" unitk train --save-dir "$RUN/$1" --resume --arch "$ARCH" --device "$DEVICE" --precision bf16 \
    --task lm="$LM" --task glm_infill="$INFILL" --task.glm_infill.mixture 0.7,0,0.3 --block-size 512 \
    --data "$RUN/modern/train" --data "$RUN/stories/train=2" \
    --valid modern="$RUN/modern/valid" --valid stories="$RUN/stories/valid" --valid novels="$RUN/novels/valid" \
    --optimizer muon --optimizer.weight-decay 0.05 --criterion.z-loss 1e-4 $MORE --max-steps "$2" \
    --log-every 50 --valid-every 500 --valid-texts 400 --save-every 500 --keep-last 2 "${@:3}"
}
echo "== 2/3 pre-train"
read_texts base "$STEPS" --data "$RUN/novels/train=0.4" --lr 3.5e-3 --lr-schedule wsd:warmup=0.02,decay=0.3 --seed "$SEED"
echo "== 3/3 pre-train further"
read_texts more "$STEPS2" --data "$RUN/some/train" --lr 2e-3 --lr-schedule wsd:warmup=0.04,decay=0.6 \
  --seed "$((SEED + 1))" --init-from "$RUN/base"
echo "$RUN/more: python3 $here/release.py makes a model with a name of it"
