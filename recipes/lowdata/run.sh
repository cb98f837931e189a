#!/usr/bin/env bash
# Few labels: an encoder pre-trained with mlm, the same trained on as Optimus' encoder, and from scratch,
# fine-tuned or frozen, at 1 to 1,000 labelled texts of each class (Li et al. 2020, section 5.3).
#
#   DATA=path/to/yelp recipes/lowdata/run.sh     sentiment.{train,dev,test}.{0,1}[.gz]; see README.md
#   recipes/lowdata/run.sh                       ../shared/data/vae/yelp-short beside the checkout, else made up
#   SIZE=base LABELS="1 10 100 1000 10000" SEEDS=10 RUN=runs/x   a larger model, other numbers, another place
#   ROWS VOCAB {MLM,VAE,FINETUNE}_STEPS FINETUNE_LR FEATURE_LR LATENT SEED MODELS
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

SIZE=${SIZE:-tiny}
case $SIZE in
  tiny | small) : "${MLM_STEPS:=1500}" "${VAE_STEPS:=1500}" "${FINETUNE_STEPS:=60}" "${LR:=2e-3}" "${FINETUNE_LR:=1e-3}" ;;
  base) : "${MLM_STEPS:=50000}" "${VAE_STEPS:=20000}" "${FINETUNE_STEPS:=1000}" "${LR:=1e-4}" "${FINETUNE_LR:=2e-5}" ;;
  *) echo "SIZE must be tiny, small or base, got $SIZE" >&2; exit 2 ;;
esac
LABELS=${LABELS:-1 10 100 1000}
MODELS=${MODELS:-scratch mlm vae mlm-frozen vae-frozen vae-latent}
known MODELS scratch mlm vae mlm-frozen vae-frozen vae-latent
SEEDS=${SEEDS:-3}
SEED=${SEED:-1}
ROWS=${ROWS:-60000}
LATENT=${LATENT:-32}
FEATURE_LR=${FEATURE_LR:-5e-3}
RUN=${RUN:-runs/lowdata-$SIZE}
whole LABELS SEEDS ROWS LATENT MLM_STEPS VAE_STEPS FINETUNE_STEPS
rates LR FINETUNE_LR FEATURE_LR
mine "$RUN"
if [ -z "${DATA:-}" ]; then
  DATA=$here/../../../shared/data/vae/yelp-short
  if [ ! -d "$DATA" ]; then
    DATA=$RUN/sample VOCAB=${VOCAB:-200} # it has few words
    echo "DATA is not given: the texts are made up"
    once "$RUN/.sample" python3 "$here/make_sample.py" "$DATA"
  fi
fi
VOCAB=${VOCAB:-4000}
common=(--seed "$SEED" --lr-schedule linear:warmup=0.1 --precision fp32 --writers none)

echo "== 1/4 texts"
once "$RUN/.texts" python3 "$here/collect.py" "$DATA" "$RUN/text" --rows "$ROWS"
once "$RUN/.data" unitk preprocess --input "$RUN/text/texts.txt" --valid "$RUN/text/valid.txt" --documents line \
  --vocab-kind bpe --vocab-size "$VOCAB" --dest "$RUN/data/texts" --overwrite
once "$RUN/.labelled" unitk preprocess --input "$RUN/text/train.jsonl" --valid "$RUN/text/valid.jsonl" \
  --test "$RUN/text/test.jsonl" --source-field text --label-field label --labels class \
  --vocab "$RUN/data/texts/train" --dest "$RUN/data/labelled" --overwrite

pretrained() { # NAME STEPS words...
  once "$RUN/.$1" unitk train "${@:3}" --data "$RUN/data/texts" --blocks line --batch-texts 64 \
    --save-dir "$RUN/$1" --resume --max-steps "$2" --valid-every "$((($2 + 3) / 4))" "${common[@]}"
}
echo "== 2/4 pre-train: mlm"
pretrained mlm "$MLM_STEPS" --task mlm --arch "bert_$SIZE" --lr "$LR"
echo "== 3/4 pre-train: optimus, whose encoder begins as that of mlm"
pretrained vae "$VAE_STEPS" --task optimus --arch "optimus_$SIZE" --arch.latent "$LATENT" --arch.init-std 0.1 \
  --init-encoder "$RUN/mlm/last" --criterion.beta cyclical:cycles=1 --lr "$LR"

for labels in $LABELS; do
  for model in $MODELS; do
    echo "== 4/4 $labels labels a class: $model"
    words=(--lr "$FINETUNE_LR")
    frozen=(--lr "$FEATURE_LR" --freeze)
    case $model in
      scratch) words=(--task.layout mlm --arch "bert_$SIZE" --lr "$LR") ;;
      mlm | vae) words+=(--init-from "$RUN/$model/last") ;;
      mlm-frozen) words=("${frozen[@]}" '[!h]*' --init-from "$RUN/mlm/last" --arch.head-pooler off) ;;
      # its pooler was trained with the latent, and stays as it is
      vae-frozen) words=("${frozen[@]}" '[!h]*,heads.*.dense.*' --init-from "$RUN/vae/last") ;;
      vae-latent)
        words=("${frozen[@]}" '[!h]*' --init-from "$RUN/vae/last" --task.layout optimus)
        words+=(--arch.head-latent on --arch.head-pooler off) ;;
    esac
    once "$RUN/.$model-$labels" unitk train --task classify "${words[@]}" --data "$RUN/data/labelled" \
      --valid "$RUN/data/labelled/valid" --valid test="$RUN/data/labelled/test" --per-label "$labels" \
      --seeds "$SEEDS" --save-dir "$RUN/$model-$labels" --resume --batch-texts 32 --max-steps "$FINETUNE_STEPS" \
      --valid-every "$(((FINETUNE_STEPS + 3) / 4))" --save-every "$FINETUNE_STEPS" --log-every "$FINETUNE_STEPS" "${common[@]}"
  done
done
# shellcheck disable=SC2086
unless_dry python3 "$here/report.py" "$RUN" "$MODELS" $LABELS
