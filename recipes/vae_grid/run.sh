#!/usr/bin/env bash
# Beta and lambda of Optimus on short sentences: what the latent holds, and what it costs.
#
#   recipes/vae_grid/run.sh                              the bundled sample of vae_captions
#   DATA=path/to/folder recipes/vae_grid/run.sh          other sentences: train, valid and test.txt[.gz]
#   SETTING=published DATA=path/to/folder ...            the grid that was published, 15 models of optimus_small: for a GPU
#   BETAS="1" LAMBDAS="0.1 1" ARCH=optimus_base ...      another grid, another model
#   INIT="--init-encoder models/bert --init-decoder models/gpt2" ARCH=optimus_base VOCAB=models/gpt2 ...
#
# What is finished is not done again: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

DATA=${DATA:-$here/../vae_captions/data}
SETTING=${SETTING:-tiny}
case $SETTING in
  tiny) : "${BETAS:=0.5 1}" "${LAMBDAS:=0.1 0.5 1}" "${ARCH:=optimus_tiny}" ;;
  published) : "${BETAS:=0.25 0.5 1}" "${LAMBDAS:=0.05 0.1 0.25 0.5 1}" "${ARCH:=optimus_small}" ;;
  *) echo "SETTING must be tiny or published, got $SETTING" >&2; exit 2 ;;
esac
TOKENIZERS=${TOKENIZERS:-shared own}
LATENT=${LATENT:-32}
STEPS=${STEPS:-1200}
SEED=${SEED:-1}
VOCAB=${VOCAB:-4000}
DRAWS=${DRAWS:-100}
whole LATENT STEPS DRAWS
rates BETAS LAMBDAS
read -ra init <<<"${INIT:-}"
RUN=${RUN:-runs/vae_grid-$SETTING}

mine "$RUN"
sentences "$DATA"
vocab=(--vocab-kind bpe --vocab-size "$VOCAB")
[[ $VOCAB =~ ^[0-9]+$ ]] || vocab=(--vocab "$VOCAB")
once "$RUN/.data" unitk preprocess --input "$RUN/train.txt" --valid "$RUN/valid.txt" --test "$RUN/test.txt" \
  --documents line "${vocab[@]}" --dest "$RUN/data" --overwrite
# a tokenizer of another kind for the encoder, as BERT's beside GPT-2's
once "$RUN/.own" unitk preprocess --input "$RUN/train.txt" --documents line --vocab-kind unigram \
  --vocab-size 2000 --vocab-only --dest "$RUN/own" --overwrite

row() { # NAME BETA LAMBDA words...: RUN/NAME.json, the measures of a model
  echo "== $1"
  once "$RUN/.$1" fresh "$RUN/$1" unitk train --config "$here/../vae_captions/train.yaml" --arch "$ARCH" \
    --arch.latent "$LATENT" --data "$RUN/data" --save-dir "$RUN/$1" --max-steps "$STEPS" --seed "$SEED" \
    --criterion.beta "cyclical:cycles=1,value=$2" --criterion.kl-threshold "$3" "${init[@]}" "${@:4}"
  said "$RUN/$1.json" unitk evaluate --checkpoint "$RUN/$1/last" --data "$RUN/data/test" --draws "$DRAWS" \
    --output-format json
}

rows=()
for beta in $BETAS; do
  for lambda in $LAMBDAS; do
    for tokenizer in $TOKENIZERS; do
      own=()
      if [ "$tokenizer" = own ]; then
        # the ablation of the tokenizer is one row, that of the last setting
        [ "$beta $lambda" = "${BETAS##* } ${LAMBDAS##* }" ] || continue
        own=(--task.source-vocab "$RUN/own")
      fi
      rows+=("$beta/$lambda/$tokenizer")
      row "$beta-$lambda-$tokenizer" "$beta" "$lambda" "${own[@]}"
    done
  done
done
unless_dry python3 "$here/report.py" "$RUN" "${rows[@]}"
