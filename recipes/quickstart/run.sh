#!/usr/bin/env bash
# From raw text to scored questions: preprocess, pre-train a small GLM, fine-tune it on question
# generation, generate with beam 5, score.
#
#   recipes/quickstart/run.sh                        the bundled sample, under 10 minutes on 2 cores
#   DATA=path/to/full/data recipes/quickstart/run.sh the full sets, in folders of the same names
#   RUN=runs/mine PRETRAIN_STEPS=2000 ...            another place, another length
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

DATA=${DATA:-$here/data}
RUN=${RUN:-runs/quickstart}
PRETRAIN_STEPS=${PRETRAIN_STEPS:-240}
FINETUNE_STEPS=${FINETUNE_STEPS:-320}

text=$DATA/openstax-ccby questions=$DATA/squad-v1.1-nqg-split
began=$SECONDS
mine "$RUN"
fresh "$RUN" mine "$RUN"

echo "== 1/5 preprocess"
unitk preprocess --input "$text/openstax.train.jsonl.gz" --valid "$text/openstax.valid.jsonl.gz" \
  --sentences punct --vocab-size 8000 --byte-fallback --dest "$RUN/data/text"
unitk preprocess --input "$questions/train.json.gz" --valid "$questions/dev.json.gz" \
  --test "$questions/test.json.gz" --window 224 --vocab "$RUN/data/text/train" --dest "$RUN/data/questions"

echo "== 2/5 pre-train"
unitk train --config "$here/pretrain.yaml" --data "$RUN/data/text" \
  --save-dir "$RUN/pretrain" --max-steps "$PRETRAIN_STEPS"

echo "== 3/5 fine-tune on question generation"
unitk train --config "$here/finetune.yaml" --data "$RUN/data/questions" \
  --init-from "$RUN/pretrain" --save-dir "$RUN/finetune" --max-steps "$FINETUNE_STEPS"

echo "== 4/5 generate"
unitk generate --checkpoint "$RUN/finetune" --input "$RUN/data/questions/test" --beam 5 \
  --max-len 32 --no-repeat-ngram-size 3 --output-format jsonl --output "$RUN/questions.jsonl"

echo "== 5/5 score"
unitk plot "$RUN/pretrain" "$RUN/finetune" --output "$RUN/loss.png"
python3 "$here/report.py" "$RUN" $((SECONDS - began))
