#!/usr/bin/env bash
# A hundred labels, words of each label, and texts of the domain without labels: a bundled model is trained
# on with the texts, and a logistic regression on its states learns the labels.
#
#   recipes/domain/run.sh                     SST-2 and IMDb of ../shared/data beside the checkout, else made up
#   DATA=path/to/data recipes/domain/run.sh   a folder with texts.jsonl, train.tsv and test.tsv; see README.md
#   PROMPTS=" . In short it is| . We were" WORDS="cold: rude slow|warm: kind quick" DATA=... recipes/domain/run.sh
#   LABELS=50 DRAWS=10 INIT=runs/x STEPS LR TOKENS SEED RUN
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

INIT=${INIT:-unitk-base-en}
PROMPTS=${PROMPTS:-" . This movie is| . I thought it was very| . The film is so| . What a"}
# of other data only the user knows the words
[ -n "${DATA:-}" ] || : "${WORDS=0: bad poor worst slow waste weak flat hard long|1: good great fun beautiful best enjoy well strong perfect love wonder treat}"
WORDS=${WORDS:-}
LABELS=${LABELS:-100}
DRAWS=${DRAWS:-20}
STEPS=${STEPS:-900}
LR=${LR:-1e-3}
TOKENS=${TOKENS:-8192}
SEED=${SEED:-1}
RUN=${RUN:-runs/domain}
whole LABELS DRAWS STEPS TOKENS
rates LR
mine "$RUN"
unless_dry python3 -c "import sklearn" 2>/dev/null ||
  { echo "recipes/domain needs scikit-learn, which is not installed here: pip install 'unitk[score]'" >&2; exit 2; }
if [ -z "${DATA:-}" ]; then
  DATA=$RUN/sample shared=$here/../../../shared/data
  if [ -d "$shared/imdb" ]; then
    once "$RUN/.sample" python3 "$here/collect.py" "$shared" "$DATA"
  else
    echo "DATA is not given: the texts are made up"
    once "$RUN/.sample" python3 "$here/make_sample.py" "$DATA"
  fi
fi
IFS='|' read -ra prompts <<<"$PROMPTS"

echo "== 1/3 texts without labels"
once "$RUN/.inputs" python3 "$here/prompts.py" "$DATA" "$RUN/inputs" "${prompts[@]}"
once "$RUN/.data" unitk preprocess --input "$RUN/inputs/texts.jsonl" --valid "$RUN/inputs/valid.jsonl" \
  --vocab "$INIT" --dest "$RUN/data" --overwrite

echo "== 2/3 train on with them"
once "$RUN/.train" unitk train --task lm --init-from "$INIT" --data "$RUN/data" --save-dir "$RUN/model" --resume \
  --seed "$SEED" --lr "$LR" --max-steps "$STEPS" --batch-tokens "$TOKENS"

states() { # NAME CHECKPOINT: RUN/states/NAME.*.npy, the states of the texts, and of each prompt after them
  local number
  [ -n "${DRY:-}" ] || mkdir -p "$RUN/states"
  embed "$1.mean" "$2" "$RUN/inputs/plain.txt" --pool mean
  for ((number = 1; number <= ${#prompts[@]}; number++)); do
    embed "$1.prompt$number" "$2" "$RUN/inputs/prompt$number.txt" --pool last
  done
  [ -z "$WORDS" ] ||
    once "$RUN/states/.$1.words" python3 "$here/label_words.py" "$RUN/inputs" "$2" "$WORDS" "$RUN/states/$1.words.npy"
}

embed() { # NAME CHECKPOINT INPUT words...
  once "$RUN/states/.$1" unitk embed --task lm --checkpoint "$2" --input "$3" "${@:4}" --truncate \
    --output "$RUN/states/$1.npy" --overwrite
}

echo "== 3/3 states"
states before "$INIT"
states after "$RUN/model"
unless_dry python3 "$here/report.py" "$RUN" "$LABELS" "$DRAWS" "$WORDS"
