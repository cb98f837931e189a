#!/usr/bin/env bash
# How unitk-mini-en-summaries was made: unitk-mini-en, fine-tuned on the abstracts of SciTLDR, first to
# write their titles and to find the sentence that says most, then to write their summaries.
#
#   DATA=path/to/full/data recipes/mini/summaries.sh    the model, in 50 minutes of a busy CPU core
#   FIRST_STEPS=100 STEPS=100 SEED=2 RUN=runs/x ...     another length, seed or place
#
# DATA holds scitldr-a/. What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

papers=${DATA:?must be the folder that holds scitldr-a/}/scitldr-a
RUN=${RUN:-runs/mini-summaries}
given DATA "$papers"/{train,dev,test}.jsonl.gz
mine "$RUN"
fields=(--source-field source --target-field target)

echo "== 1/4 preprocess"
for part in train dev; do
  once "$RUN/.$part" python3 "$here/abstracts.py" --scitldr "$papers/$part.jsonl.gz" --dest "$RUN/$part.jsonl"
done
once "$RUN/.first" unitk preprocess --input "$RUN/train.jsonl" --valid "$RUN/dev.jsonl" "${fields[@]}" \
  --vocab unitk-mini-en --dest "$RUN/first" --overwrite
once "$RUN/.data" unitk preprocess --input "$papers/train.jsonl.gz" --valid "$papers/dev.jsonl.gz" \
  --test "$papers/test.jsonl.gz" "${fields[@]}" --vocab unitk-mini-en --dest "$RUN/data" --overwrite

train() { # STAGE words...: go on with it, or begin it
  once "$RUN/.$1" unitk train --task glm_infill --save-dir "$RUN/$1" --resume --arch.dropout 0 --criterion.label-smoothing 0.1 \
    --optimizer muon --optimizer.weight-decay 0.05 --lr-schedule linear:warmup=0.05 --max-source-len 384 \
    --max-target-len 64 --batch-tokens 4096 --max-tokens 4096 --valid-every 100 --valid-texts 200 --log-every 25 \
    --seed "${SEED:-1}" "${@:2}"
}

echo "== 2/4 titles and sentences"
train titles --data "$RUN/first" --init-from unitk-mini-en --max-steps "${FIRST_STEPS:-300}" --lr 3e-3
echo "== 3/4 summaries"
train finetune --data "$RUN/data" --init-from "$RUN/titles" --max-steps "${STEPS:-400}" --lr 2e-3
echo "== 4/4 write the test summaries"
once "$RUN/.written" unitk generate --checkpoint "$RUN/finetune" --input "$RUN/data/test" \
  --config "$here/unitk-mini-en-summaries.yaml" --output-format jsonl --output "$RUN/written.jsonl" --overwrite
python3 "$here/../summarize/report.py" "$RUN" --test "$papers/test.jsonl.gz" "${fields[@]}"
