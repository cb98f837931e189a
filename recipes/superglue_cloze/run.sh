#!/usr/bin/env bash
# SuperGLUE by cloze questions from 32 texts a set (FewGLUE): a pre-trained model, the same from
# scratch, and the majority class, on the full dev sets.
#
#   DATA=path/to/FewGLUE recipes/superglue_cloze/run.sh     folders BoolQ, CB, ...; see README.md
#   recipes/superglue_cloze/run.sh                          ../shared/data/nlu-small/fewglue32dev beside the checkout
#   INIT=runs/x ARCH=modern_mini                            a model that is pre-trained, and its architecture
#   SETS="rte copa" OBJECTIVE=mlm SEED=2 RUN=runs/x         some sets, another objective, seed or place
#   TEXTS="a.jsonl" ROWS VOCAB BLOCK LENGTH {PRETRAIN,FINETUNE}_STEPS PRETRAIN_TOKENS MAX_TOKENS LR FINETUNE_LR
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SIZE=${SIZE:-small}
OBJECTIVE=${OBJECTIVE:-glm_infill}
SETS=${SETS:-boolq cb copa multirc record rte wic wsc}
known SETS boolq cb copa multirc record rte wic wsc
RUN=${RUN:-runs/superglue-$OBJECTIVE-$SIZE}
SEED=${SEED:-1}
[ "$SIZE" = base ] || : "${FINETUNE_STEPS:=40}" "${FINETUNE_LR:=5e-4}" "${LENGTH:=128}"
LENGTH=${LENGTH:-256}
settings
sample=$here/../quickstart/data/openstax-ccby
begin "$sample/openstax.train.jsonl.gz"
DATA=${DATA:-$here/../../../shared/data/nlu-small/fewglue32dev}
if [ ! -d "$DATA" ]; then
  echo "DATA: there is no folder $DATA. No set comes with unitk, as none has a licence for that." >&2
  echo "https://github.com/THUDM/P-tuning has FewGLUE_32dev; SuperGLUE's own val.jsonl go beside its files." >&2
  exit 2
fi
ARCH=${ARCH:-$(arch_of "$(finetuned_as "$OBJECTIVE")" "$SIZE")}
[ -z "${INIT:-}" ] || model=() # SIZE is that of models that are trained here
common=(--seed "$SEED" --lr-schedule linear:warmup=0.1 --max-tokens "$MAX_TOKENS" --log-every 20)

echo "== 1/3 texts"
for set in $SETS; do
  once "$RUN/.text.$set" python3 "$here/collect.py" "$DATA" "$RUN/text" "$set" ${ROWS:+--most "$ROWS"}
done
if [ -n "${INIT:-}" ]; then
  echo "== 2/3 pre-trained: $INIT"
  init=(--init-from "$INIT")
else
  once "$RUN/.text" unitk preprocess "${texts[@]/#/--input=}" --valid "$sample/openstax.valid.jsonl.gz" \
    --sentences punct --vocab-size "$VOCAB" --byte-fallback --dest "$RUN/data/text" --overwrite
  echo "== 2/3 pre-train: $OBJECTIVE"
  pretrain --task "$OBJECTIVE" --arch "$ARCH" --data "$RUN/data/text" --block-size "$BLOCK"
fi
vocab=${INIT:-$RUN/data/text/train}

for set in $SETS; do
  echo "== 3/3 $set"
  labels=class more=(--task.multi-token on) # a small vocabulary may part Maybe or Yes
  # fields of each set, and the patterns of GLM's code
  case $set in
    boolq) fields=passage,question number=4 ;;
    cb) fields=premise,hypothesis number=3 ;;
    copa) fields=premise,choices,question number=0 labels=choice ;;
    multirc) fields=passage,question,answer number=0 ;;
    record) fields=passage,choices,query number=0 labels=choice ;;
    rte) fields=premise,hypothesis number=0 ;;
    wic) fields=sentence1,sentence2,word number=1 ;;
    wsc) fields=text,choices,pronoun number=2 labels=choice ;;
  esac
  [ $labels = class ] || more=()
  [ "$set" != wsc ] || more=(--criterion.loss mixed --task.length-penalty 1)
  once "$RUN/.$set" unitk preprocess --input "$RUN/text/$set.train.jsonl" --source-field "$fields" \
    --label-field label --labels $labels --vocab "$vocab" --dest "$RUN/data/$set" --overwrite
  mkdir -p "$RUN/$set"
  for row in scratch pretrained; do
    begins=("${init[@]}")
    [ $row = pretrained ] || begins=(--task.layout "$OBJECTIVE" --arch "$ARCH" --optimizer adamw "${model[@]}")
    once "$RUN/$set/.$row" fresh "$RUN/$set/$row" unitk train --task cloze "${begins[@]}" --data "$RUN/data/$set" \
      --task.patterns "$set" --task.pattern "$number" --task.max-length "$LENGTH" "${more[@]}" \
      --save-dir "$RUN/$set/$row" --batch-texts 16 --max-steps "$FINETUNE_STEPS" --lr "$FINETUNE_LR" "${common[@]}"
    once "$RUN/$set/.$row.predict" fresh "$RUN/$set/$row.jsonl" unitk predict --checkpoint "$RUN/$set/$row" \
      --input "$RUN/text/$set.dev.jsonl" --source-field "$fields" --output "$RUN/$set/$row.jsonl"
  done
done
# shellcheck disable=SC2086
unless_dry python3 "$here/report.py" "$RUN" $SETS
