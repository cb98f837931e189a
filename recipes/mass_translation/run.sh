#!/usr/bin/env bash
# MASS in two languages: halves of a parallel corpus to pre-train on, 1,000 pairs, and back-translation.
#
#   recipes/mass_translation/run.sh                         letters to reverse and tiny models, minutes
#   SETTING=gpu DATA=path/to/multi30k/task1 recipes/mass_translation/run.sh   4 + 4 layers of 256, on a GPU
#   ROWS="scratch mass back unsupervised" SEED=2 RUN=runs/mine ...
#
# What is finished is not done again, and training goes on: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"
. "$here/../translate/files.sh"

SETTING=${SETTING:-tiny}
ROWS=${ROWS:-scratch mass back}
SEED=${SEED:-1}
PRECISION=${PRECISION:-auto}
case $SETTING in
  tiny) # to see that it works
    : "${PAIRS:=1000}" "${PIECES:=40}" "${LAYERS:=1}" "${WIDTH:=32}" "${MASS_STEPS:=20}" "${BATCH:=64}"
    : "${EPOCHS:=2}" "${PAIR_BATCH:=64}" "${BACK_STEPS:=6}" "${LR:=3e-3}" "${DROPOUT:=0}" ;;
  cpu)
    : "${PAIRS:=1000}" "${PIECES:=4000}" "${LAYERS:=3}" "${WIDTH:=128}" "${MASS_STEPS:=2000}" "${BATCH:=128}"
    : "${EPOCHS:=24}" "${PAIR_BATCH:=32}" "${BACK_STEPS:=600}" "${LR:=2e-3}" "${DROPOUT:=0.1}" ;;
  gpu)
    : "${PAIRS:=1000}" "${PIECES:=6000}" "${LAYERS:=4}" "${WIDTH:=256}" "${MASS_STEPS:=800}" "${BATCH:=512}"
    : "${EPOCHS:=24}" "${PAIR_BATCH:=64}" "${BACK_STEPS:=200}" "${LR:=1e-3}" "${DROPOUT:=0.2}" ;;
  *) echo "SETTING must be tiny, cpu or gpu, got $SETTING" >&2; exit 2 ;;
esac
known ROWS scratch mass back unsupervised
RUN=${RUN:-runs/mass_translation-$SETTING}
whole PIECES MASS_STEPS BACK_STEPS BATCH PAIR_BATCH
mine "$RUN"

echo "== 1/4 preprocess"
multi30k_or_letters
text=$RUN/text
once "$RUN/.text" python3 "$here/prepare.py" "${files[@]}" --pairs "$PAIRS" --dest "$text"
once "$RUN/.vocab" unitk preprocess --input "$text/mono.0" --input "$text/mono.1" --vocab-kind bpe --vocab-size "$PIECES" \
  --vocab-only --dest "$RUN/vocab" --overwrite
for own in 0 1; do
  other=$((1 - own))
  once "$RUN/.mono$own" unitk preprocess --input "$text/mono.$own" --valid "$text/valid.$own" --documents line \
    --languages "$own" --vocab "$RUN/vocab" --dest "$RUN/mono$own" --overwrite
  once "$RUN/.pairs$own" unitk preprocess --source-file "$text/pairs.$own" --target-file "$text/pairs.$other" \
    --valid-source-file "$text/valid.$own" --valid-target-file "$text/valid.$other" --languages "$own,$other" \
    --vocab "$RUN/vocab" --dest "$RUN/pairs$own" --overwrite
done
mono=(--blocks line --block-size 100 --data "$RUN/mono0" --data "$RUN/mono1" --valid "first=$RUN/mono0" --valid "second=$RUN/mono1")
pairs=(--data "$RUN/pairs0" --data "$RUN/pairs1" --valid "there=$RUN/pairs0" --valid "back=$RUN/pairs1")
model=(--arch mass_translation --arch.num-layers "$LAYERS" --arch.width "$WIDTH" --arch.num-heads 4
  --arch.ffn-width "$((2 * WIDTH))" --arch.max-positions 160 --arch.shared-embeddings on --arch.dropout "$DROPOUT"
  --arch.attention-dropout 0)
common=(--max-tokens 16384 --optimizer.weight-decay 0.01 --seed "$SEED" --precision "$PRECISION" --resume --log-every 50
  --writers none)

learnt() { # STAGE STEPS POINTS words...: RUN/STAGE, trained, with checkpoints at POINTS equal distances
  local dir=$RUN/$1 every=$(((($2) + $3 - 1) / $3))
  once "$RUN/.$1" unitk train "${@:4}" "${common[@]}" --save-dir "$dir" --max-steps "$2" --save-every "$every" \
    --valid-every "$every" --keep-last "$3"
}

judged() { # STAGE: RUN/STAGE.bleu.json, BLEU of each of its checkpoints
  said "$RUN/$1.bleu.json" python3 "$here/bleu.py" "$RUN/$1" "$text/test.0" "$text/test.1"
}

tuned() { # STAGE words...: learns the pairs, in both directions
  local steps=$((EPOCHS * 2 * PAIRS / PAIR_BATCH))
  learnt "$1" "$steps" 6 --task mass_translation "${pairs[@]}" --batch-texts "$PAIR_BATCH" --lr "$LR" \
    --lr-schedule linear:warmup=0.1 --criterion.label-smoothing 0.1 "${@:2}"
  judged "$1"
}

back() { # STAGE FROM: goes on from a stage by back-translation, at a third of the rate
  learnt "$1" "$BACK_STEPS" 4 --task back_translation "${mono[@]}" --init-from "$RUN/$2/last" --batch-texts "$BATCH" \
    --lr "$(python3 -c "print($LR / 3)")" --lr-schedule linear:warmup=0.05
  judged "$1"
}

echo "== 2/4 pre-train"
[ "$ROWS" = scratch ] ||
  learnt pretrain "$MASS_STEPS" 1 --task mass_translation "${model[@]}" "${mono[@]}" --batch-texts "$BATCH" --lr "$LR" \
    --lr-schedule linear:warmup=0.1
for row in $ROWS; do
  echo "== 3/4 fine-tune and translate: $row"
  case $row in
    scratch) tuned scratch "${model[@]}" ;;
    mass) tuned mass --init-from "$RUN/pretrain/last" ;;
    back)
      tuned mass --init-from "$RUN/pretrain/last"
      back back mass ;;
    unsupervised) back unsupervised pretrain ;;
  esac
done
echo "== 4/4 report"
# shellcheck disable=SC2086
unless_dry python3 "$here/report.py" "$RUN" $ROWS
