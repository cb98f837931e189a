#!/usr/bin/env bash
# How unitk-vae-en was made: an autoencoder of short English sentences.
#
#   DATA=path/to/full/data recipes/mini/vae.sh       the model, in 15 minutes of one CPU core
#   recipes/mini/vae.sh                              fewer sentences: those of the samples
#   STEPS=500 BETA=0.3 SEED=2 RUN=runs/x ...         another length, weight of the divergence, seed
#
# DATA holds squad-v1.1-nqg-split/, openstax-ccby/ and small-parallel-enja/.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

RUN=${RUN:-runs/vae}
STEPS=${STEPS:-2700}
BETA=${BETA:-0.1}
SEED=${SEED:-1}

if [ -n "${DATA:-}" ]; then
  short=$DATA/small-parallel-enja train=$short/train.en.gz valid=$short/dev.en.gz test=$short/test.en.gz
else
  DATA=$here/../quickstart/data short=$here/../vae_captions/data
  train=$short/train.txt.gz valid=$short/valid.txt.gz test=$short/test.txt.gz
fi
given DATA "$DATA/squad-v1.1-nqg-split/train.json.gz" "$DATA/openstax-ccby/openstax.train.jsonl.gz" "$train" "$valid" "$test"
mine "$RUN"

echo "== 1/3 sentences"
once "$RUN/.squad" python3 "$here/squad_text.py" \
  --squad "$DATA/squad-v1.1-nqg-split/train.json.gz" --dest "$RUN/squad.jsonl"
once "$RUN/.sentences" python3 "$here/sentences.py" --sentences "$train" --held-out "$valid" "$test" \
  --texts "$DATA/openstax-ccby/openstax.train.jsonl.gz" "$RUN/squad.jsonl" --dest "$RUN/train.txt"
once "$RUN/.data" unitk preprocess --input "$RUN/train.txt" --valid "$valid" --test "$test" \
  --documents line --vocab-size 2800 --byte-fallback --dest "$RUN/data" --overwrite

echo "== 2/3 train"
once "$RUN/.vae" unitk train --task optimus --arch optimus_sentence --data "$RUN/data" --blocks line \
  --block-size 40 --batch-texts 128 --optimizer muon --lr 6e-3 --lr-schedule linear:warmup=0.05 \
  --criterion.kl-mode sum --criterion.beta "constant:value=$BETA,warmup=0.5" --max-steps "$STEPS" \
  --log-every 100 --valid-every 500 --panel-every 1000000 --seed "$SEED" --save-dir "$RUN/vae" --resume

echo "== 3/3 written again: held-out sentences of ten words"
[ -n "${DRY:-}" ] || gzip -dc "$test" | awk 'NF == 10' >"$RUN/ten.txt"
unitk latent reconstruct --checkpoint "$RUN/vae" --input "$RUN/ten.txt" --output "$RUN/again.txt" --overwrite
unitk score --metric bleu --tokenize none --hypotheses "$RUN/again.txt" --references "$RUN/ten.txt"
