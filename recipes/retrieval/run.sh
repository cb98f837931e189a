#!/usr/bin/env bash
# Which paragraph answers a question? Vectors that are learnt from SQuAD beside BM25 and TF-IDF.
#
#   recipes/retrieval/run.sh                                 the bundled sample and a tiny model, a minute
#   SETTING=mini DATA=path/to/full/data recipes/retrieval/run.sh   from unitk-base-en, on all of SQuAD
#   INIT=runs/bert LAYOUT=... STEPS=400 PAIRS=64 LR=1e-4 SEED=2 RUN=runs/mine ...   another model, other settings
#
# What is finished is not done again, and what was cut short goes on: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SETTING=${SETTING:-tiny}
DATA=${DATA:-$here/../quickstart/data}
RUN=${RUN:-runs/retrieval-$SETTING}
SEED=${SEED:-1}
case $SETTING in
  tiny) # to see that it works: from scratch
    model=(--arch modern_tiny --task.layout mlm) before=0
    : "${STEPS:=60}" "${PAIRS:=32}" "${LENGTH:=64}" "${LR:=3e-3}" ;;
  mini) # one epoch of all pairs
    : "${INIT:=unitk-base-en}" "${STEPS:=1200}" "${PAIRS:=64}" "${LENGTH:=200}" "${LR:=1e-4}" ;;
  *) echo "SETTING must be tiny or mini, got $SETTING" >&2; exit 2 ;;
esac
[ -z "${INIT:-}" ] || model=(--init-from "$INIT") before=1
squad=$DATA/squad-v1.1-nqg-split
given DATA "$squad/train.json.gz" "$squad/dev.json.gz"
mine "$RUN"
text=$RUN/text
once "$RUN/.text" python3 "$here/prepare.py" "$squad/train.json.gz" "$squad/dev.json.gz" "$text"
once "$RUN/.data" unitk preprocess --input "$text/pairs.jsonl" --source-field question --target-field paragraph \
  --vocab "${INIT:-unitk-base-en}" --dest "$RUN/data" --overwrite
mkdir -p "$RUN/found"

echo "== by words"
for how in tfidf bm25; do
  once "$RUN/.$how" python3 "$here/lexical.py" "$how" "$text" "$RUN/found/$how.trec"
done
searched() { # NAME CHECKPOINT
  echo "== $1"
  once "$RUN/.$1" unitk search --checkpoint "$2" --input "$text/queries.jsonl" --documents "$text/texts.jsonl" \
    --truncate --top 100 --output "$RUN/found/$1.trec" --overwrite
}
[ "$before" = 0 ] || searched before "$INIT"
once "$RUN/.trained" unitk train --task contrastive "${model[@]}" --data "$RUN/data/train" --save-dir "$RUN/vectors" \
  --max-source-len 32 --max-target-len "$LENGTH" --batch-texts "$PAIRS" --max-tokens 32768 --max-steps "$STEPS" \
  --lr "$LR" --seed "$SEED" --valid none --keep-last 1 --writers none --resume
searched learnt "$RUN/vectors"
unless_dry python3 "$here/report.py" "$RUN"
