#!/usr/bin/env bash
# How unitk-base-en-questions was made: an adapter of unitk-base-en, trained on questions of SQuAD.
#
#   DATA=path/to/full/data recipes/mini/questions.sh    the model, in two hours of one CPU core
#   recipes/mini/questions.sh                           the same on the quickstart's sample
#   STEPS=100 SEED=2 RUN=runs/x ...                     another length, seed or place
#
# DATA holds squad-v1.1-nqg-split/. What is finished is not done again: run it once more to go on
# after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

questions=${DATA:-$here/../quickstart/data}/squad-v1.1-nqg-split
RUN=${RUN:-runs/base-questions}
given DATA "$questions"/{train,dev,test}.json.gz
mine "$RUN"

echo "== 1/3 preprocess"
once "$RUN/.data" unitk preprocess --input "$questions/train.json.gz" --valid "$questions/dev.json.gz" \
  --test "$questions/test.json.gz" --window 80 --vocab unitk-base-en --dest "$RUN/data" --overwrite
echo "== 2/3 fine-tune"
once "$RUN/.finetune" unitk train --task glm_infill --init-from unitk-base-en --adapter lora:rank=32 --data "$RUN/data" \
  --save-dir "$RUN/finetune" --resume --criterion.label-smoothing 0.1 --lr 3e-3 --lr-schedule linear:warmup=0.05 \
  --max-source-len 96 --max-target-len 32 --batch-tokens 4096 --max-tokens 4096 --max-steps "${STEPS:-2800}" \
  --valid-every 100 --valid-texts 300 --log-every 25 --seed "${SEED:-1}"
echo "== 3/3 write the test questions"
once "$RUN/.written" unitk generate --checkpoint "$RUN/finetune" --input "$RUN/data/test" \
  --config "$here/unitk-base-en-questions.yaml" --output-format jsonl --output "$RUN/written.jsonl" --overwrite
unless_dry python3 "$here/../qg_squad/report.py" "$RUN" "$questions"
