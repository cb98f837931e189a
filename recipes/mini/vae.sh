#!/usr/bin/env bash
# How unitk-vae-en was made: an autoencoder of short English sentences.
#
#   DATA=path/to/full/data recipes/mini/vae.sh       the model, in an hour of one CPU core
#   recipes/mini/vae.sh                              fewer sentences: those of the samples
#   STEPS=500 STEPS2=100 STEPS3=100 SEED=3 ...        other lengths, another seed
#
# DATA holds squad-v1.1-nqg-split/, openstax-ccby/, small-parallel-enja/ and, if they are there,
# stories/ and eltec-eng/.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

RUN=${RUN:-runs/vae}
STEPS=${STEPS:-9500}
STEPS2=${STEPS2:-2000}
STEPS3=${STEPS3:-1600}
SEED=${SEED:-1}

if [ -n "${DATA:-}" ]; then
  short=$DATA/small-parallel-enja train=$short/train.en.gz valid=$short/dev.en.gz test=$short/test.en.gz
else
  DATA=$here/../quickstart/data short=$here/../vae_captions/data
  train=$short/train.txt.gz valid=$short/valid.txt.gz test=$short/test.txt.gz
fi
given DATA "$DATA/squad-v1.1-nqg-split/train.json.gz" "$DATA/openstax-ccby/openstax.train.jsonl.gz" "$train" "$valid" "$test"
texts=("$DATA/openstax-ccby/openstax.train.jsonl.gz" "$RUN/squad.jsonl")
for text in "$DATA/stories/stories.train.jsonl.gz" "$DATA/eltec-eng/eltec-eng.train.jsonl.gz"; do
  [ ! -e "$text" ] || texts+=("$text")
done
mine "$RUN"

echo "== 1/3 sentences"
once "$RUN/.squad" python3 "$here/squad_text.py" \
  --squad "$DATA/squad-v1.1-nqg-split/train.json.gz" --dest "$RUN/squad.jsonl"
once "$RUN/.sentences" python3 "$here/sentences.py" --sentences "$train" --held-out "$valid" "$test" \
  --texts "${texts[@]}" --dest "$RUN/train.txt"
once "$RUN/.data" unitk preprocess --input "$RUN/train.txt" --valid "$valid" --test "$test" \
  --documents line --vocab-kind bpe --vocab-size 4500 --byte-fallback --vocab-normalization nmt_nfkc_cf --dest "$RUN/data" --overwrite

echo "== 2/3 train: first what samples well, then what writes a sentence again; the mean does both"
how=(--task optimus --data "$RUN/data" --blocks line --block-size 40 --batch-texts 128 --optimizer muon
  --criterion.kl-mode sum --log-every 100 --panel-every 1000000 --resume)
once "$RUN/.first" unitk train "${how[@]}" --arch optimus_sentence --arch.width 192 --arch.ffn-width 512 \
  --task.encoder-drop 0.15 --criterion.beta constant:value=0.4,warmup=0.5 --lr 6e-3 --lr-schedule linear:warmup=0.05 \
  --max-steps "$STEPS" --valid-every 500 --seed "$SEED" --save-dir "$RUN/first"
once "$RUN/.second" unitk train "${how[@]}" --init-from "$RUN/first" \
  --task.encoder-drop 0.05 --criterion.beta 0.2 --lr 2e-3 --lr-schedule linear:warmup=0.03 \
  --max-steps "$STEPS2" --valid-every 250 --seed $((SEED + 1)) --save-dir "$RUN/second"
once "$RUN/.third" unitk train "${how[@]}" --init-from "$RUN/second" \
  --criterion.beta 0.1 --lr 2e-3 --lr-schedule linear:warmup=0.03 \
  --max-steps "$STEPS3" --valid-every 250 --seed $((SEED + 2)) --save-dir "$RUN/third"
once "$RUN/.mean" unitk average --checkpoint "$RUN"/{first,second,third} --dest "$RUN/vae"

echo "== 3/3 written again: held-out sentences of ten words"
[ -n "${DRY:-}" ] || gzip -dc "$test" | awk 'NF == 10' >"$RUN/ten.txt"
unitk latent reconstruct --checkpoint "$RUN/vae" --input "$RUN/ten.txt" --output "$RUN/again.txt" --overwrite
unitk score --metric bleu --tokenize none --hypotheses "$RUN/again.txt" --references "$RUN/ten.txt"
