#!/usr/bin/env bash
# Translation by a small Transformer: English to German on Multi30k, as Wu et al. 2021 and others have it.
#
#   recipes/translate/run.sh                                   letters to reverse and tiny models, a minute
#   SETTING=cpu DATA=path/to/multi30k/task1 recipes/translate/run.sh   4 + 4 layers of 128, an hour and a half of a CPU core
#   SEEDS="1 2" RUN=runs/mine ...                              several seeds, another place
#
# What is finished is not done again, and training goes on: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"
. "$here/files.sh"

SETTING=${SETTING:-tiny}
RUN=${RUN:-runs/translate-$SETTING}
SEEDS=${SEEDS:-1}
# an update: --batch-tokens, or --batch-texts pairs
case $SETTING in
  tiny) # to see that it works
    : "${PIECES:=40}" "${STEPS:=60}" "${SAVE_EVERY:=6}" "${LAYERS:=2}" "${WIDTH:=64}" "${BATCH:=--batch-tokens 2048}"
    : "${LR:=5e-3}" "${WARMUP:=30}" "${DROPOUT:=0}" ;;
  cpu)
    : "${PIECES:=10000}" "${STEPS:=10000}" "${SAVE_EVERY:=250}" "${LAYERS:=4}" "${WIDTH:=128}" "${BATCH:=--batch-tokens 4096}"
    : "${LR:=5e-3}" "${WARMUP:=2000}" "${DROPOUT:=0.3}" ;;
  *) echo "SETTING must be tiny or cpu, got $SETTING" >&2; exit 2 ;;
esac
PRECISION=${PRECISION:-auto}
whole SEEDS STEPS SAVE_EVERY PIECES
saved=$(((STEPS + SAVE_EVERY - 1) / SAVE_EVERY)) last=$((saved < 10 ? saved : 10))
mine "$RUN"

echo "== 1/3 preprocess"
multi30k_or_letters
text=$RUN/text
once "$RUN/.text" python3 "$here/prepare.py" "${files[@]}" --pieces "$PIECES" --dest "$text"
once "$RUN/.data" unitk preprocess --format fairseq --source-lang en --target-lang de --dest "$RUN/data-bin" --overwrite \
  --source-file "$text/train.en" --target-file "$text/train.de" --valid-source-file "$text/valid.en" \
  --valid-target-file "$text/valid.de" --test-source-file "$text/test.en" --test-target-file "$text/test.de"

for seed in $SEEDS; do
  echo "== 2/3 train: seed $seed"
  dir=$RUN/unitk-$seed
  mkdir -p "$dir"
  # shellcheck disable=SC2086
  once "$dir/.train" unitk train --task seq2seq --arch mass_small --arch.num-layers "$LAYERS" --arch.width "$WIDTH" \
    --arch.num-heads 4 --arch.ffn-width "$((2 * WIDTH))" --arch.dropout "$DROPOUT" --arch.activation-dropout 0 \
    --criterion.label-smoothing 0.1 --data "$RUN/data-bin" --save-dir "$dir/train" --resume $BATCH --lr "$LR" \
    --lr-schedule "inverse_sqrt:warmup=$WARMUP" --optimizer.weight-decay 0 --optimizer.eps 1e-8 --max-steps "$STEPS" \
    --save-every "$SAVE_EVERY" --valid-every "$SAVE_EVERY" --keep-last "$last" --precision "$PRECISION" --seed "$seed" \
    --log-every 100 --writers none
  echo "== 3/3 average of the last $last checkpoints, beam 5: seed $seed"
  once "$dir/.mean" fresh "$dir/mean" unitk average --checkpoint "$dir/train" --last "$last" --dest "$dir/mean"
  once "$dir/.written" fresh "$dir/written.txt" unitk generate --checkpoint "$dir/mean" --input "$RUN/data-bin/test" \
    --beam 5 --output "$dir/written.txt"
  said "$dir/bleu.json" unitk score --metric bleu --lowercase --hypotheses "$dir/written.txt" \
    --references "$text/plain.de" --output-format json
done
unless_dry python3 "$here/report.py" "$RUN"
