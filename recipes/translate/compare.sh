#!/usr/bin/env bash
# unitk and fairseq 0.12.2 on the same data-bin with the same settings: 2,000 updates of 128 pairs in
# fp32, two seeds each.
#
#   PEER=peers/bin/python recipes/translate/compare.sh     the Python of the environment of fairseq_shim.py
#
# What is finished is not done again. fairseq's side of a seed begins again after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

: "${PEER:?the Python of an environment with fairseq, which recipes/benchmarks/fairseq_shim.py tells how to make}"
RUN=${RUN:-runs/translate-compare}
SEEDS=${SEEDS:-1 2}
STEPS=${STEPS:-2000}
SAVE_EVERY=${SAVE_EVERY:-100}
PAIRS=${PAIRS:-128}
SETTING=cpu RUN=$RUN SEEDS=$SEEDS STEPS=$STEPS SAVE_EVERY=$SAVE_EVERY BATCH="--batch-texts $PAIRS" PRECISION=fp32 \
  bash "$here/run.sh"
for seed in $SEEDS; do
  echo "== fairseq: seed $seed"
  dir=$RUN/fairseq-$seed
  once "$RUN/.fairseq-$seed" fresh "$dir" "$PEER" "$here/fairseq_peer.py" "$RUN" "$seed" "$STEPS" "$PAIRS" "$SAVE_EVERY"
  said "$dir/bleu.json" unitk score --metric bleu --lowercase --hypotheses "$dir/written.txt" \
    --references "$RUN/text/plain.de" --output-format json
done
python3 "$here/report.py" "$RUN"
