#!/usr/bin/env bash
# How unitk-base-en-summaries was made: an adapter of unitk-base-en, trained on the abstracts of SciTLDR
# to write their summaries, and now and then their titles and the sentence that says most.
#
#   DATA=path/to/full/data recipes/mini/summaries.sh    the model, in 25 minutes of one CPU core
#   STEPS=100 SEED=2 RUN=runs/x ...                     another length, seed or place
#
# DATA holds scitldr-a/. What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

papers=${DATA:?must be the folder that holds scitldr-a/}/scitldr-a
RUN=${RUN:-runs/base-summaries}
given DATA "$papers"/{train,dev,test}.jsonl.gz
mine "$RUN"
fields=(--source-field source --target-field target)

echo "== 1/3 preprocess"
for part in train dev; do
  once "$RUN/.$part" python3 "$here/abstracts.py" --scitldr "$papers/$part.jsonl.gz" --dest "$RUN/$part.jsonl"
done
once "$RUN/.first" unitk preprocess --input "$RUN/train.jsonl" --valid "$RUN/dev.jsonl" "${fields[@]}" \
  --vocab unitk-base-en --dest "$RUN/first" --overwrite
once "$RUN/.data" unitk preprocess --input "$papers/train.jsonl.gz" --valid "$papers/dev.jsonl.gz" \
  --test "$papers/test.jsonl.gz" "${fields[@]}" --vocab unitk-base-en --dest "$RUN/data" --overwrite

echo "== 2/3 fine-tune"
once "$RUN/.finetune" unitk train --task glm_infill --init-from unitk-base-en --adapter lora:rank=32 \
  --data "$RUN/data/train=4" --data "$RUN/first/train=0.5" --valid "$RUN/data/valid" --save-dir "$RUN/finetune" --resume \
  --criterion.label-smoothing 0.1 --lr 3e-3 --lr-schedule linear:warmup=0.05 --max-source-len 384 --max-target-len 64 \
  --batch-tokens 4096 --max-tokens 4096 --max-steps "${STEPS:-240}" --valid-every 50 --valid-texts 150 --log-every 25 \
  --seed "${SEED:-1}"
echo "== 3/3 write the test summaries"
once "$RUN/.written" unitk generate --checkpoint "$RUN/finetune" --input "$RUN/data/test" \
  --config "$here/unitk-base-en-summaries.yaml" --output-format jsonl --output "$RUN/written.jsonl" --overwrite
unless_dry python3 "$here/../summarize/report.py" "$RUN" --test "$papers/test.jsonl.gz" "${fields[@]}"
