#!/usr/bin/env bash
# How unitk-base-en is made: textbooks, an encyclopedia, stories and novels, read by a language model
# that fills blanks in between. The rate stays for 70 % of the run and falls to zero.
#
#   DATA=path/to/full/data recipes/mini/base.sh         days of one CPU core
#   STEPS=24000 RUN=runs/base SEED=1 ...                other lengths; a stopped run goes on
#   LM=3 INFILL=1 ...                                   shares of the language model and of the blanks
#
# DATA holds squad-v1.1-nqg-split/, openstax-ccby/, stories/ and eltec-eng/.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

RUN=${RUN:-runs/base}
: "${STEPS:=24000}" "${SEED:=1}" "${LM:=3}" "${INFILL:=1}" "${LR:=4e-3}" "${SCHEDULE:=wsd:warmup=0.01,decay=0.3}"
: "${ARCH:=qwen3_mini}" "${VOCAB:=8000}"
given DATA "$DATA/squad-v1.1-nqg-split/train.json.gz" "$DATA"/openstax-ccby/openstax.{train,valid}.jsonl.gz \
  "$DATA"/stories/stories.{train,valid}.jsonl.gz "$DATA"/eltec-eng/eltec-eng.{train,valid}.jsonl.gz
mine "$RUN"

echo "== 1/2 texts"
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

echo "== 2/2 pre-train"
# stories count three times, novels less than half
once "$RUN/.base" unitk train --save-dir "$RUN/base" --resume --arch "$ARCH" \
  --task lm="$LM" --task glm_infill="$INFILL" --task.glm_infill.mixture 0.7,0,0.3 --block-size 256 \
  --data "$RUN/modern/train" --data "$RUN/stories/train=2" --data "$RUN/novels/train=0.4" \
  --valid modern="$RUN/modern/valid" --valid stories="$RUN/stories/valid" --valid novels="$RUN/novels/valid" \
  --optimizer muon --optimizer.weight-decay 0.05 --criterion.z-loss 1e-4 --lr "$LR" --lr-schedule "$SCHEDULE" \
  --batch-tokens 4096 --max-tokens 4096 --max-steps "$STEPS" --seed "$SEED" \
  --log-every 50 --valid-every 500 --valid-texts 200 --save-every 100 --keep-last 2
