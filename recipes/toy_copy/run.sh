#!/usr/bin/env bash
# Learn to copy (or reverse, or sort) short sequences; exact match on unseen ones must reach 0.98.
#
#   recipes/toy_copy/run.sh                   about a minute on one core
#   RULE=reverse TASK=glm_infill recipes/toy_copy/run.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

RULE=${RULE:-copy}
TASK=${TASK:-glm_infill}
known RULE copy reverse sort
known TASK glm_infill unilm pmlm lm mass seq2seq
case $TASK in
  unilm) arch=unilm_tiny ;; pmlm) arch=unilm2_tiny ;; lm) arch=gpt2_tiny ;;
  mass | seq2seq) arch=bart_tiny ;; # mass_tiny scales its embeddings, and takes many more updates
  glm_infill) arch=glm_tiny ;;
esac
ARCH=${ARCH:-$arch}
LR=${LR:-3e-3}
STEPS=${STEPS:-500}
RUN=${RUN:-runs/toy_$RULE-$TASK}

mine "$RUN"
unless_dry fresh "$RUN" mine "$RUN"
unless_dry python3 "$here/make_data.py" "$RUN/text" "$RULE"
unitk preprocess --source-file "$RUN/text/train.source.txt" --target-file "$RUN/text/train.target.txt" \
  --valid-source-file "$RUN/text/valid.source.txt" --valid-target-file "$RUN/text/valid.target.txt" \
  --vocab "$RUN/text/letters.words" --dest "$RUN/data"
unitk train --task "$TASK" --arch "$ARCH" --data "$RUN/data" --save-dir "$RUN/run" \
  --lr "$LR" --max-steps "$STEPS" --max-tokens 4096 --valid-every 200 --log-every 100
unitk generate --checkpoint "$RUN/run" --input "$RUN/text/test.source.txt" --output "$RUN/written.txt" \
  --beam 1 --max-len 16
unless_dry python3 "$here/exact_match.py" "$RUN/written.txt" "$RUN/text/test.target.txt"
