#!/usr/bin/env bash
# THU-ERNIE at a small size: entities of Wikipedia predicted, relations with and without entities.
#
#   recipes/thu_ernie/run.sh                   the bundled samples, minutes on a CPU
#   WIKI=linked.jsonl.gz FEWREL=val_wiki.json.gz recipes/thu_ernie/run.sh
#   VECTORS=transe.txt recipes/thu_ernie/run.sh  vectors of entities instead of those that are made
#   PRETRAIN_STEPS FINETUNE_STEPS LR FINETUNE_LR SEED RUN: see README.md
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

RUN=${RUN:-runs/thu-ernie}
SEED=${SEED:-1}
WIKI=${WIKI:-$here/data/linked.jsonl.gz}
FEWREL=${FEWREL:-$here/data/fewrel.json.gz}
given WIKI "$WIKI"
given FEWREL "$FEWREL"
[ -z "${VECTORS:-}" ] || given VECTORS "$VECTORS"
whole PRETRAIN_STEPS FINETUNE_STEPS
rates LR FINETUNE_LR
mine "$RUN"
text=$RUN/text model=$RUN/pretrain
common=(--seed "$SEED" --lr-schedule linear:warmup=0.1 --max-tokens 2048 --max-source-len 200)

echo "== 1/4 texts, vectors and names of entities"
once "$RUN/.wiki" python3 "$here/data.py" wiki "$WIKI" "$text" ${VECTORS:+"$VECTORS"}
once "$RUN/.fewrel" python3 "$here/data.py" fewrel "$FEWREL" "$text"
once "$RUN/.linked" unitk preprocess --input "$text/train.jsonl" --valid "$text/valid.jsonl" --source-field text \
  --label-field links --labels links --vocab-size "${VOCAB:-4000}" --vocab-normalization nfkc_cf --byte-fallback \
  --dest "$RUN/data/linked" --overwrite
once "$RUN/.relations" unitk preprocess --input "$text/relations.train.jsonl" --valid "$text/relations.valid.jsonl" \
  --source-field text --label-field label --labels class --vocab "$RUN/data/linked" --dest "$RUN/data/relations" --overwrite

echo "== 2/4 pre-train"
once "$RUN/.pretrain" unitk train --task thu_ernie --task.entities "$text/vectors.txt" --task.forms "$text/names.tsv" \
  --arch thu_ernie_small --arch.num-layers 3 --arch.width 128 --arch.ffn-width 512 --arch.init-std 0.05 --arch.dropout 0 \
  --data "$RUN/data/linked" --save-dir "$model" --resume --batch-tokens 2048 --max-steps "${PRETRAIN_STEPS:-1200}" \
  --lr "${LR:-3e-3}" "${common[@]}"

echo "== 3/4 predict entities"
for weights in 0,1,0 0,0,1; do # none of the entities, and all of them
  said "$RUN/entities-$weights.json" python3 "$here/entities.py" "$model" "$RUN/data/linked/valid" "$weights"
done

echo "== 4/4 relations"
for row in entities none; do
  layout=()
  [ $row = entities ] || layout=(--task.layout mlm)
  once "$RUN/.$row" fresh "$RUN/$row" unitk train --task classify "${layout[@]}" --init-from "$model/last" \
    --data "$RUN/data/relations" --save-dir "$RUN/$row" --batch-texts 32 --max-steps "${FINETUNE_STEPS:-400}" \
    --lr "${FINETUNE_LR:-1e-3}" "${common[@]}"
  once "$RUN/.$row.predict" fresh "$RUN/$row.jsonl" unitk predict --checkpoint "$RUN/$row" \
    --input "$text/relations.valid.jsonl" --source-field text --truncate --output "$RUN/$row.jsonl"
  said "$RUN/$row.json" unitk score --metric class --hypotheses "$RUN/$row.jsonl" \
    --references "$text/relations.valid.jsonl" --label-field label --output-format json
done
unless_dry python3 "$here/report.py" "$RUN"
