#!/usr/bin/env bash
# A latent space of short everyday sentences: train a small Optimus, then walk in it.
#
#   recipes/vae_captions/run.sh                       the bundled sample
#   DATA=path/to/folder recipes/vae_captions/run.sh   other sentences: train, valid and test.txt[.gz]
#   ARCH=optimus_small STEPS=20000 RUN=runs/x ...     more than a demonstration, in another place
#   LATENT VOCAB PER_CLASS                            dimensions, pieces, labels a class of the probe
#
# Training that is finished is not done again, and goes on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

DATA=${DATA:-$here/data}
ARCH=${ARCH:-optimus_tiny}
STEPS=${STEPS:-1200}
LATENT=${LATENT:-32}
VOCAB=${VOCAB:-4000}
PER_CLASS=${PER_CLASS:-1,10,100}
RUN=${RUN:-runs/vae_captions}

mine "$RUN"
sentences "$DATA"
label() { python3 "$here/label.py" <"$RUN/$1.txt"; }
for split in train test; do
  said "$RUN/$split.labelled.txt" label "$split"
done

echo "== 1/4 preprocess"
once "$RUN/.data" unitk preprocess --input "$RUN/train.txt" --valid "$RUN/valid.txt" --test "$RUN/test.txt" \
  --documents line --vocab-kind bpe --vocab-size "$VOCAB" --dest "$RUN/data" --overwrite

echo "== 2/4 train"
once "$RUN/.vae" unitk train --config "$here/train.yaml" --arch "$ARCH" --arch.latent "$LATENT" \
  --data "$RUN/data" --save-dir "$RUN/vae" --resume --max-steps "$STEPS"

echo "== 3/4 measure"
model=(--checkpoint "$RUN/vae/last")
unitk evaluate --data "$RUN/data/test" --beam 5 "${model[@]}"
unitk latent probe --input "$RUN/train.labelled.txt" --test "$RUN/test.labelled.txt" \
  --per-class "$PER_CLASS" "${model[@]}"

echo "== 4/4 walk"
walk=("${model[@]}" --max-len 32)
show() { printf '\n-- %s\n' "$1"; }
show "test sentences and what is written from their latents"
few() { head -n 8 "$RUN/test.txt" >"$RUN/few.txt"; }
unless_dry few
unitk latent reconstruct --input "$RUN/few.txt" --output "$RUN/written.txt" --overwrite "${walk[@]}"
unless_dry paste "$RUN/few.txt" "$RUN/written.txt"
show "on the way from one sentence to another"
unitk latent interpolate "he is a teacher ." "where do you live ?" --steps 7 "${walk[@]}"
show "the same on an arc"
unitk latent interpolate "he is a teacher ." "where do you live ?" --steps 7 --path slerp "${walk[@]}"
show "'i am tired .' is to 'she is tired .' as 'i like music .' is to ..."
unitk latent analogy "i am tired ." "she is tired ." "i like music ." --degree 0,0.5,1,1.5 "${walk[@]}"
show "one dimension of 'i like music .' moved"
unitk latent traverse "i like music ." --active 1 --steps 5 "${walk[@]}"
show "samples of the prior"
unitk latent sample --count 5 "${walk[@]}"
show "the nearest training sentences to 'he went to school .'"
unitk latent neighbors "he went to school ." --among "$RUN/train.txt" --count 5 "${model[@]}"
unitk latent plot --input "$RUN/test.labelled.txt" --output "$RUN/latent.png" "${model[@]}"
