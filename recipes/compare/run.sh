#!/usr/bin/env bash
# What each pre-training objective is worth: the same words, texts an update, updates and seeds for all
# of them, then minimal pairs, last words, labels, questions and summaries; beside them the same models
# from scratch.
#
#   recipes/compare/run.sh                                      bundled samples and tiny models, minutes
#   SETTING=cpu DATA=path/to/full/data recipes/compare/run.sh   models of 5 M parameters, 10 M words
#   SETTING=gpu DATA=path/to/full/data recipes/compare/run.sh   the same models, four times the text an update
#   ROWS="unilm-1 scratch.unilm-1" RUN=runs/mine ...            some rows: OBJECTIVE-SEED, scratch.TASK-SEED
#   RATES=2.5e-3,5e-3,1e-2 SEEDS="1 2 3" ...                    rates that each objective tries, seeds of each row
#
# What is finished is not done again, and pre-training goes on: run it once more after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"
shopt -s nullglob

SETTING=${SETTING:-tiny}
DATA=${DATA:-$here/../quickstart/data}
RUN=${RUN:-runs/compare-$SETTING}
OBJECTIVES="lm glm_infill scratch.glm_infill scratch.lm hybrid unilm scratch.unilm mass scratch.mass pmlm scratch.pmlm mlm"
SETS=${SETS:-sst2 cola stsb}
case $SETTING in
  tiny) # to see that it works: one rate, and two seeds of two objectives
    size=tiny rates=
    [ -n "${SEEDS:-}" ] || more="lm-2 glm_infill-2"
    : "${SEEDS:=1}"
    : "${BOOKS:=60k}" "${NOVELS:=0}" "${BLOCK:=64}" "${STEPS:=60}" "${TEXTS:=16}" "${QUESTIONS:=1000}" "${ASKED:=100}"
    : "${LABELLED:=400}" "${GLUE_STEPS:=20}" "${QG_STEPS:=40}" "${SUM_STEPS:=20}" "${MAX_TOKENS:=4096}" ;;
  cpu) # 8 M tokens a row
    size=mini rates=2.5e-3,5e-3,1e-2
    : "${BOOKS:=7.2M}" "${NOVELS:=2.8M}" "${BLOCK:=256}" "${STEPS:=2000}" "${TEXTS:=16}" "${QUESTIONS:=20000}"
    : "${ASKED:=2000}" "${LABELLED:=8000}" "${GLUE_STEPS:=500}" "${QG_STEPS:=450}" "${SUM_STEPS:=250}" "${MAX_TOKENS:=8192}" ;;
  gpu) # 29 M tokens a row
    size=mini rates=2.5e-3,5e-3,1e-2
    : "${BOOKS:=7.2M}" "${NOVELS:=2.8M}" "${BLOCK:=256}" "${STEPS:=1800}" "${TEXTS:=64}" "${QUESTIONS:=20000}"
    : "${ASKED:=2000}" "${LABELLED:=8000}" "${GLUE_STEPS:=300}" "${QG_STEPS:=450}" "${SUM_STEPS:=250}" "${MAX_TOKENS:=16384}" ;;
  *) echo "SETTING must be tiny, cpu or gpu, got $SETTING" >&2; exit 2 ;;
esac
: "${SEEDS:=1 2 3}" "${RATES=$rates}" "${LR:=5e-3}" "${FINETUNE_LR:=3e-3}" "${GLUE_LR:=1e-3}" "${FINETUNE_TOKENS:=4096}"
if [ -z "${ROWS:-}" ]; then # all rows with one seed, then all with the next
  ROWS=$(for seed in $SEEDS; do for one in $OBJECTIVES; do echo "$one-$seed"; done; done | xargs)
  ROWS="$ROWS ${more:-}"
fi
PAIRS=${PAIRS:-$here/../babylm/data/blimp.jsonl.gz} # 50 pairs of each set
given PAIRS "$PAIRS"
LAMBADA=${LAMBADA:-$DATA/lm-eval/lambada/lambada_test.jsonl.gz}
SUMMARIES=$DATA/scitldr-a
[ -d "$SUMMARIES" ] || SUMMARIES=$here/../summarize/data/scitldr-a
squad=$DATA/squad-v1.1-nqg-split openstax=$DATA/openstax-ccby
vocab=unitk-base-en asked=() mini=$here/../mini
mine "$RUN"

echo "== texts"
once "$RUN/.squad" python3 "$mini/squad_text.py" --squad "$squad/train.json.gz" --dest "$RUN/squad.jsonl"
once "$RUN/.books" python3 "$here/../babylm/take.py" --texts "$openstax/openstax.train.jsonl.gz" "$RUN/squad.jsonl" \
  --words "$BOOKS" --dest "$RUN/books.txt"
texts=(--input "$RUN/books.txt")
for novels in "$DATA"/eltec-eng/*train*; do
  [ "$NOVELS" = 0 ] && continue
  once "$RUN/.novels" python3 "$here/../babylm/take.py" --texts "$novels" --words "$NOVELS" --dest "$RUN/novels.txt"
  texts=(--input "$RUN/books.txt" "$RUN/novels.txt")
done
once "$RUN/.text" unitk preprocess "${texts[@]}" --vocab $vocab --dest "$RUN/data/text" --overwrite
once "$RUN/.valid" unitk preprocess --valid "$openstax/openstax.valid.jsonl.gz" --sentences punct --vocab $vocab \
  --dest "$RUN/data/held-out" --overwrite
for part in train test; do
  once "$RUN/.$part" python3 "$here/take.py" --squad "$squad/$part.json.gz" \
    --questions "$([ $part = train ] && echo "$QUESTIONS" || echo "$ASKED")" --dest "$RUN/$part.json"
done
once "$RUN/.questions" unitk preprocess --input "$RUN/train.json" --valid "$squad/dev.json.gz" \
  --test "$RUN/test.json" --window 80 --vocab $vocab --dest "$RUN/data/questions" --overwrite
once "$RUN/.summaries" unitk preprocess --input "$SUMMARIES/train.jsonl.gz" --valid "$SUMMARIES/dev.jsonl.gz" \
  --test "$SUMMARIES/test.jsonl.gz" --source-field source --target-field target --vocab $vocab \
  --dest "$RUN/data/summaries" --overwrite
GLUE=${GLUE:-$DATA/nlu-small}
if [ ! -d "$GLUE" ]; then
  echo "there is no $GLUE: GLUE's sets are made up"
  GLUE=$RUN/made-up
  once "$RUN/.made-up" python3 "$here/../glue/make_sample.py" "$GLUE"
fi
for set in $SETS; do
  once "$RUN/.text.$set" python3 "$here/../glue/collect.py" "$GLUE" "$RUN/text" "$set" --rows "$LABELLED"
done

rate_of() { # OBJECTIVE words...: the best of RATES at an eighth of the updates, by its own validation
  local table=$RUN/rates/$1/sweep.json steps=$(((STEPS + 7) / 8))
  rate=$LR
  [ -n "$RATES" ] || return 0
  [ -n "${DRY:-}" ] || mkdir -p "$RUN/rates"
  once "$RUN/rates/.$1" unitk sweep --over "lr=$RATES" --save-dir "$RUN/rates/$1" -- "${@:2}" --max-steps "$steps" \
    --valid-every "$steps" --valid-texts 200 --save-every "$steps"
  # the first trial of the table is the best one
  [ ! -e "$table" ] || rate=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["trials"][0]["lr"])' "$table")
}

labels_of() { # SET: the arrays `from` and `to`, and `task` and `labels`
  task=classify labels=class from=(--source-field sentence1,sentence2) to=(--label-field label)
  case $1 in cola | sst2) from=(--source-field sentence) ;; stsb) task=regress labels=number ;; esac
}

for row in $ROWS; do
  objective=${row%-*} seed=${row##*-} dir=$RUN/rows/$row
  name=${objective#scratch.} layout=()
  arch=modern_$size
  [ "$name" != mass ] || arch=modern_encdec_$size
  words=(--task "$name") judge=()
  case $name in
    hybrid) # as GPT-BERT: Charpentier and Samuel 2024, arXiv 2410.24159
      name=lm layout=(--task.layout mlm) judge=(--task lm)
      words=(--task mlm=1 --task lm=1 --task.mlm.shift on --task.mlm.max-span 3 --task.mlm.rounding random
        --task.mlm.mask-ratio linear:value=0.3,floor=0.5) ;;
    glm_infill) words+=(--task.mixture 0.5,0,0.5) ;; # short spans and one long one
    unilm) words+=(--task.nsp off) ;; # its one label a text outweighs all hidden tokens of these updates
    *) arch_of "$name" small >/dev/null ;; # or: no such objective
  esac
  writer=$(finetuned_as "$name")
  stack=(--arch "$arch" --arch.dropout 0)
  pace=(--max-tokens "$MAX_TOKENS" --log-every 50 --writers none --optimizer muon --keep-last 1)
  common=(--seed "$seed" "${pace[@]}" --lr-schedule linear:warmup=0.1)
  mkdir -p "$dir"
  if [ "$objective" = "scratch.$name" ]; then
    begins=("${stack[@]}") layout=(--task.layout "$name")
  else
    echo "== $row: pre-train"
    learn=("${words[@]}" "${stack[@]}" --data "$RUN/data/text" --valid "$RUN/data/held-out/valid" --block-size "$BLOCK"
      --batch-texts "$TEXTS" "${pace[@]}" --lr-schedule wsd:warmup=0.016,decay=0.3 --optimizer.weight-decay 0.05
      --criterion.z-loss 1e-4)
    rate_of "$objective" "${learn[@]}" --seed 1
    once "$dir/.pretrain" unitk train "${learn[@]}" --seed "$seed" --save-dir "$dir/pretrain" --resume --max-steps "$STEPS" \
      --lr "$rate" --valid-every "$(((STEPS + 3) / 4))" --valid-texts 200 --save-every "$(((STEPS + 9) / 10))"
    begins=(--init-from "$dir/pretrain/last" --arch.dropout 0)
    said "$dir/blimp.json" unitk evaluate --checkpoint "$dir/pretrain/last" "${judge[@]}" --pairs "$PAIRS" --output-format json \
      --output "$dir/pairs.jsonl" --overwrite
    [ ! -e "$LAMBADA" ] ||
      said "$dir/lambada.json" unitk evaluate --checkpoint "$dir/pretrain/last" "${judge[@]}" --last-word "$LAMBADA" \
        --output-format json
  fi
  echo "== $row: questions"
  mkdir -p "$dir/questions" "$dir/summaries"
  SOURCE=96 TARGET=32 FINETUNE_STEPS=$QG_STEPS search=(--lenpen 1.2)
  finetuned "$dir/questions" "$RUN/data/questions" --task "$writer" "${begins[@]}" --valid-texts 300
  written "$dir/questions" "$RUN/data/questions"
  echo "== $row: summaries"
  SOURCE=224 TARGET=40 FINETUNE_STEPS=$SUM_STEPS search=(--min-len 12)
  finetuned "$dir/summaries" "$RUN/data/summaries" --task "$writer" "${begins[@]}"
  written "$dir/summaries" "$RUN/data/summaries"
  for set in $SETS; do
    labels_of "$set"
    labelled "$set" $labels "$RUN/text/$set.train.jsonl" "$RUN/text/$set.dev.jsonl"
    FINETUNE_STEPS=$GLUE_STEPS FINETUNE_LR=$GLUE_LR judged "$set" "$dir/$set" $task $labels \
      "$RUN/text/$set.dev.jsonl" "${begins[@]}" "${layout[@]}"
  done
  touch "$dir/finished"
  # shellcheck disable=SC2086
  python3 "$here/report.py" "$RUN" "$SUMMARIES/test.jsonl.gz" "$PAIRS" $ROWS
done

echo "checks: what would make the comparison void"
looked=("$RUN/data/questions" "$RUN/data/summaries" "$RUN"/rows/*/pretrain)
# what has hardly been trained knows sentences by their length alone
[ "$SETTING" = tiny ] || looked+=("$RUN"/rows/*/pairs.jsonl)
# of SciTLDR's dev and test abstracts, 1.3 % repeat papers of train
[ -n "${DRY:-}" ] || unitk check "${looked[@]}" --shared 0.02 | tee "$RUN/checks.txt" ||
  echo "there are faults: read $RUN/checks.txt before the table" >&2
