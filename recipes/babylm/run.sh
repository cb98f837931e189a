#!/usr/bin/env bash
# A hybrid of masked and causal language modelling on few words, as in BabyLM: checkpoints at counts
# of words, and BLiMP's accuracy over them.
#
#   recipes/babylm/run.sh                     10 M words read once by qwen3_mini, on 2 CPU cores
#   SETTING=gpu recipes/babylm/run.sh         ten times by qwen3_small, on a GPU
#   SETTING=strict-small TEXTS='train_10M/*.train' HELDOUT='dev/*.dev' PAIRS=blimp_filtered FAST=blimp_fast
#     recipes/babylm/run.sh                   the whole track: three seeds, 19 revisions, an entry to upload
#   TEXTS='train_10M/*.train' HELDOUT='dev/*.dev' recipes/babylm/run.sh      the official corpora
#   MASKED=15 CAUSAL=1 SEED=2 RUN=runs/mine recipes/babylm/run.sh            other shares
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"
shopt -s nullglob

SETTING=${SETTING:-cpu}
RUN=${RUN:-runs/babylm-$SETTING}
SEED=${SEED:-1}
if [ "$SETTING" = strict-small ] && [ -z "${ONE:-}" ]; then
  mine "$RUN"
  for seed in ${SEEDS:=1 2 3}; do
    echo "== seed $seed"
    ONE=1 SEED=$seed RUN=$RUN/seed-$seed bash "$here/run.sh"
  done
  unless_dry python3 "$here/report.py" "$RUN"
  exit
fi
[ "$SETTING" = strict-small ] && masked=0 || masked=1
: "${MASKED:=$masked}" "${CAUSAL:=1}"
case $SETTING in
  tiny) # half a minute, to see that all of it works
    : "${WORDS:=60k}" "${READ:=120k}" "${MARKS:=40k,80k,120k}" "${ARCH:=qwen3_tiny}" "${VOCAB:=2000}"
    : "${BATCH_TOKENS:=4096}" "${MAX_TOKENS:=4096}" "${LR:=4e-3}" "${VALID_EVERY:=20}" ;;
  cpu) # 5 M parameters
    : "${WORDS:=10M}" "${READ:=10M}" "${MARKS:=1M,2M,...,10M}" "${ARCH:=qwen3_mini}" "${VOCAB:=8000}"
    : "${BATCH_TOKENS:=4096}" "${MAX_TOKENS:=4096}" "${LR:=4e-3}" "${VALID_EVERY:=250}" ;;
  gpu) # 31 M parameters, at most ten epochs
    : "${WORDS:=10M}" "${READ:=100M}" "${MARKS:=1M,2M,...,10M,20M,...,100M}" "${ARCH:=qwen3_small}"
    : "${VOCAB:=8000}" "${BATCH_TOKENS:=16384}" "${MAX_TOKENS:=65536}" "${LR:=3e-3}" "${VALID_EVERY:=500}" ;;
  strict-small) # the track: 10 M words at most ten times, 19 revisions
    : "${WORDS:=10M}" "${READ:=100M}" "${MARKS:=1M,2M,...,10M,20M,...,100M}" "${ARCH:=qwen3_mini}"
    : "${VOCAB:=8000}" "${BATCH_TOKENS:=8192}" "${MAX_TOKENS:=8192}" "${LR:=4e-3}" "${VALID_EVERY:=500}" ;;
  *) echo "SETTING must be tiny, cpu, gpu or strict-small, got $SETTING" >&2; exit 2 ;;
esac
: "${BLOCK:=128}" "${JUDGES:=lm}"

entry() { # revisions to upload, and the choices on all pairs as the track's collator reads them
  local folder revision=chck
  once "$RUN/.entry" fresh "$RUN/entry" unitk convert --from unitk "$RUN/train" --to hf "$RUN/entry" --revisions --task lm \
    --language en --dataset "${CORPUS:-$WORDS words}"
  for folder in "$RUN"/train "$RUN"/train/words_*; do
    revision=chck_${folder##*words_} pairs=${FAST:-$PAIRS} name=blimp_fast
    [ "$folder" != "$RUN/train" ] || revision=main pairs=$PAIRS name=blimp_filtered
    chosen "$folder" "$pairs" "$RUN/results/entry/$revision/zero_shot/causal/blimp/$name"
  done
}

chosen() { # CHECKPOINT PAIRS DIR: DIR/predictions.json, the likelier sentence of each pair
  mkdir -p "$3"
  said "$3/scores.json" unitk evaluate --checkpoint "$1" --task lm --pairs "$2" --output "$3/scores.jsonl" \
    --overwrite --output-format json
  once "$3/.predictions" python3 "$here/predictions.py" "$3/scores.jsonl" "$3/predictions.json"
}

DATA=${DATA:-$here/../../../shared/data} # the full sets beside the checkout, or the bundled sample
[ -d "$DATA" ] || DATA=$here/../quickstart/data
HELDOUT=${HELDOUT:-$DATA/openstax-ccby/openstax.valid.jsonl.gz}
PAIRS=${PAIRS:-$here/data/blimp.jsonl.gz} # 50 pairs of each set; the whole of it tells more
given PAIRS "$PAIRS"
begin "$DATA"/openstax-ccby/*train* "$DATA"/eltec-eng/*train*

echo "== 1/4 take $WORDS words"
once "$RUN/.words" python3 "$here/take.py" --texts "${texts[@]}" --words "$WORDS" --seed "$SEED" \
  --dest "$RUN/words.txt"
echo "== 2/4 preprocess"
once "$RUN/.data" unitk preprocess --input "$RUN/words.txt" --valid "$HELDOUT" --vocab-size "$VOCAB" \
  --byte-fallback --dest "$RUN/data" --overwrite
echo "== 3/4 train: $MASKED masked texts to $CAUSAL causal ones"
tasks=(--task lm --task.ends off)
[ "$MASKED" = 0 ] || tasks=(--task "mlm=$MASKED" --task "lm=$CAUSAL" --task.mlm.shift on --task.mlm.max-span 3
  --task.mlm.rounding random --task.mlm.mask-ratio linear:value=0.3,floor=0.5 --task.lm.ends off)
once "$RUN/.train" unitk train "${tasks[@]}" --arch "$ARCH" --criterion.z-loss 1e-4 --optimizer muon \
  --optimizer.weight-decay 0.1 --lr "$LR" --lr-schedule wsd:warmup=0.016,decay=0.3 --data "$RUN/data" \
  --valid-every "$VALID_EVERY" --valid-texts 500 --block-size "$BLOCK" --batch-tokens "$BATCH_TOKENS" \
  --max-tokens "$MAX_TOKENS" --max-words "$READ" --max-epochs 10 --save-at-words "$MARKS" --seed "$SEED" \
  --save-dir "$RUN/train" --resume
echo "== 4/4 judge: BLiMP at every count of words"
mkdir -p "$RUN/blimp"
for checkpoint in "$RUN"/train/words_*; do
  for task in $JUDGES; do
    said "$RUN/blimp/$(basename "$checkpoint")-$task.json" unitk evaluate --checkpoint "$checkpoint" --task "$task" \
      --pairs "${FAST:-$PAIRS}" --output-format json
  done
done
[ "$SETTING" != strict-small ] || entry
unitk check "$RUN/data" "$RUN/train" | tee "$RUN/checks.txt" ||
  echo "there are faults: read $RUN/checks.txt before the figures" >&2
unless_dry python3 "$here/report.py" "$RUN"
