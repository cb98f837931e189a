#!/usr/bin/env bash
# How unitk-base-en was made: textbooks, an encyclopedia, stories and novels, read by a language model
# that fills blanks in between, in two rounds whose rate falls to zero. The second has fewer novels.
#
#   DATA=path/to/full/data recipes/mini/run.sh         the model, in four minutes of an H200
#   DEVICE=cpu MORE="--batch-tokens 4096 --max-tokens 4096" STEPS=18700 STEPS2=6600 ...   days of a core
#   ARCH=qwen3_mini STEPS=300 STEPS2=100 SEED=2 RUN=runs/x ...   another size, length, seed or place
#
# DATA holds squad-v1.1-nqg-split/, openstax-ccby/ and, if they are there, stories/ and eltec-eng/;
# without DATA it is the quickstart's sample. What is finished is not done again: run it once more
# to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

RUN=${RUN:-runs/base}
: "${ARCH:=qwen3_15m}" "${STEPS:=1562}" "${STEPS2:=560}" "${SEED:=1}" "${DEVICE:=auto}" "${VOCAB:=8000}"
: "${LM:=3}" "${INFILL:=1}" "${MORE:=--batch-tokens 49152 --max-tokens 49152}"
DATA=${DATA:-$here/../quickstart/data}
given DATA "$DATA/squad-v1.1-nqg-split/train.json.gz" "$DATA"/openstax-ccby/openstax.{train,valid}.jsonl.gz
mine "$RUN"

echo "== 1/3 texts"
modern=("$RUN/squad.jsonl" "$DATA/openstax-ccby/openstax.train.jsonl.gz")
stories=$DATA/stories/stories novels=$DATA/eltec-eng/eltec-eng
[ ! -e "$stories.train.jsonl.gz" ] || modern+=("$stories.train.jsonl.gz")
once "$RUN/.squad" python3 "$here/squad_text.py" --squad "$DATA/squad-v1.1-nqg-split/train.json.gz" --dest "$RUN/squad.jsonl"
text() { # NAME VALID inputs...: a corpus, in the vocabulary of the modern texts
  once "$RUN/.$1" unitk preprocess --input "${@:3}" --valid "$2" --sentences punct --dest "$RUN/$1" --overwrite "${vocab[@]}"
}
vocab=(--vocab-size "$VOCAB" --byte-fallback)
text modern "$DATA/openstax-ccby/openstax.valid.jsonl.gz" "${modern[@]}"
vocab=(--vocab "$RUN/modern/train")
both=() first=() second=()
if [ -e "$stories.train.jsonl.gz" ]; then # which count three times
  text stories "$stories.valid.jsonl.gz" "$stories.train.jsonl.gz"
  both+=(--data "$RUN/stories/train=2" --valid stories="$RUN/stories/valid")
fi
if [ -e "$novels.train.jsonl.gz" ]; then # the second round has two chapters of five
  text novels "$novels.valid.jsonl.gz" "$novels.train.jsonl.gz"
  once "$RUN/.chapters" sh -c 'gzip -dc "$1" | awk "NR % 5 < 2" >"$2"' sh "$novels.train.jsonl.gz" "$RUN/some.jsonl"
  text some "$novels.valid.jsonl.gz" "$RUN/some.jsonl"
  first+=(--data "$RUN/novels/train=0.4" --valid novels="$RUN/novels/valid") second+=(--data "$RUN/some/train")
fi

read_texts() { # STAGE STEPS words...: go on with it, or begin it
  once "$RUN/.$1" unitk train --save-dir "$RUN/$1" --resume --arch "$ARCH" --device "$DEVICE" --precision bf16 \
    --task lm="$LM" --task glm_infill="$INFILL" --task.glm_infill.mixture 0.7,0,0.3 --block-size 512 \
    --data "$RUN/modern/train" --valid modern="$RUN/modern/valid" ${both[@]+"${both[@]}"} \
    --optimizer muon --optimizer.weight-decay 0.05 --criterion.z-loss 1e-4 $MORE --max-steps "$2" \
    --log-every 50 --valid-every 500 --valid-texts 400 --save-every 500 --keep-last 2 "${@:3}"
}
echo "== 2/3 pre-train"
read_texts base "$STEPS" ${first[@]+"${first[@]}"} --lr 3.5e-3 --lr-schedule wsd:warmup=0.02,decay=0.3 --seed "$SEED"
echo "== 3/3 pre-train further"
read_texts more "$STEPS2" ${second[@]+"${second[@]}"} --lr 2e-3 --lr-schedule wsd:warmup=0.04,decay=0.6 \
  --seed "$((SEED + 1))" --init-from "$RUN/base"
echo "$RUN/more: python3 $here/release.py makes a model with a name of it"
