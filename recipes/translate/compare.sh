#!/usr/bin/env bash
# unitk and fairseq on the same data-bin with the same settings: 2,000 updates of 128 pairs in
# fp32, two seeds each.
#
#   recipes/translate/compare.sh                           both in one environment (make fairseq)
#   PEER=peers/bin/python recipes/translate/compare.sh     fairseq in another
#
# What is finished is not done again. fairseq's side of a seed begins again after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

PEER=${PEER:-python}
"$PEER" -c 'import fairseq_cli' 2>/dev/null || { echo "fairseq is not installed for $PEER: pip install 'unitk[fairseq]', or make fairseq in a clone" >&2; exit 2; }
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
