#!/usr/bin/env bash
# What each pre-training objective is worth: the same words, texts an update, updates and seeds for all
# of them, then minimal pairs, last words, labels, questions and summaries; beside them the same models
# from scratch.
#
#   recipes/compare/run.sh                                      bundled samples and tiny models, minutes
#   SETTING=cpu DATA=path/to/full/data recipes/compare/run.sh   models of 5 M parameters, 10 M words
#   SETTING=gpu DATA=path/to/full/data recipes/compare/run.sh   the same models, four times the text an update
#   ROWS="unilm-1 scratch.unilm-1" RUN=runs/mine ...            some rows: OBJECTIVE-SEED, scratch.TASK-SEED
#   ROWS="lm-1 mlm-1 mlm@labels-1 mlm@computing-1" ...          as many labels, or as much computing, as `lm` has
#   RATES=2.5e-3,5e-3,1e-2 SEEDS="1 2 3" ...                    rates that each objective tries, seeds of each row
#   JOBS=8 SETTING=gpu ...                                      rows at a time; RUN/log has what each of them prints
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
  tiny) # to see that it works: one rate, two seeds of two objectives, and two longer rows
    size=tiny rates="" glue_rates="" LONGER=""
    [ -n "${SEEDS:-}" ] || more="lm-2 glm_infill-2 mlm@computing-1 unilm@labels-1"
    : "${SEEDS:=1}"
    : "${BOOKS:=60k}" "${NOVELS:=0}" "${BLOCK:=64}" "${STEPS:=60}" "${TEXTS:=16}" "${QUESTIONS:=1000}" "${ASKED:=100}"
    : "${LABELLED:=400}" "${GLUE_STEPS:=20}" "${QG_STEPS:=40}" "${SUM_STEPS:=20}" "${MAX_TOKENS:=4096}" ;;
  cpu) # 8 M tokens a row
    size=mini rates=2.5e-3,5e-3,1e-2,2e-2 glue_rates=1e-3,3e-3,1e-2 LONGER="mlm@computing unilm@computing"
    : "${BOOKS:=7.2M}" "${NOVELS:=2.8M}" "${BLOCK:=256}" "${STEPS:=2000}" "${TEXTS:=16}" "${QUESTIONS:=20000}"
    : "${ASKED:=2000}" "${LABELLED:=8000}" "${GLUE_STEPS:=500}" "${QG_STEPS:=450}" "${SUM_STEPS:=250}" "${MAX_TOKENS:=8192}" ;;
  gpu) # 29 M tokens a row
    size=mini rates=2.5e-3,5e-3,1e-2,2e-2 glue_rates=1e-3,3e-3,1e-2 LONGER="mlm@computing unilm@computing mlm@labels unilm@labels pmlm@labels"
    : "${FAST=--static --capture --compile}"
    : "${BOOKS:=7.2M}" "${NOVELS:=2.8M}" "${BLOCK:=256}" "${STEPS:=1800}" "${TEXTS:=64}" "${QUESTIONS:=20000}"
    : "${ASKED:=2000}" "${LABELLED:=8000}" "${GLUE_STEPS:=300}" "${QG_STEPS:=450}" "${SUM_STEPS:=250}" "${MAX_TOKENS:=32768}" ;;
  *) echo "SETTING must be tiny, cpu or gpu, got $SETTING" >&2; exit 2 ;;
esac
: "${SEEDS:=1 2 3}" "${JOBS:=1}" "${RATES=$rates}" "${GLUE_RATES=$glue_rates}" "${LR:=5e-3}" "${FINETUNE_LR:=3e-3}" "${GLUE_LR:=1e-3}" "${FINETUNE_TOKENS:=4096}"
if [ -z "${ROWS:-}" ]; then # all rows with one seed, then all with the next; the long ones after them
  for all in "$OBJECTIVES" "$LONGER"; do
    for seed in $SEEDS; do for one in $all; do ROWS+="$one-$seed "; done; done
  done
  ROWS+=${more:-}
fi
tasks="lm|glm_infill|unilm|mass|pmlm|mlm"
for row in $ROWS; do # a wrong one is refused before any work is done
  [[ $row =~ ^((hybrid|$tasks)(@(tokens|labels|computing))?|scratch\.($tasks))-[0-9]+$ ]] || {
    echo "ROWS: there is no $row: write OBJECTIVE-SEED, OBJECTIVE@labels-SEED (or computing, tokens) or scratch.TASK-SEED;" \
      "objectives are hybrid|$tasks" >&2
    exit 2
  }
done
PAIRS=${PAIRS:-$here/../babylm/data/blimp.jsonl.gz} # 50 pairs of each set
given PAIRS "$PAIRS"
LAMBADA=${LAMBADA:-$DATA/lm-eval/lambada/lambada_test.jsonl.gz}
SUMMARIES=$DATA/scitldr-a
[ -d "$SUMMARIES" ] || SUMMARIES=$here/../summarize/data/scitldr-a
squad=$DATA/squad-v1.1-nqg-split openstax=$DATA/openstax-ccby
vocab=unitk-base-en asked=() mini=$here/../mini
mine "$RUN"

labels_of() { # SET: the arrays `from`, `to` and `best`, and `task` and `labels`
  task=classify labels=class best=(--best-metric valid/class/correct) from=(--source-field sentence1,sentence2) to=(--label-field label)
  case $1 in cola | sst2) from=(--source-field sentence) ;; stsb) task=regress labels=number best=() ;; esac
}

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
  once "$RUN/.text.$set" python3 "$here/../glue/collect.py" "$GLUE" "$RUN/text" "$set" --rows "$LABELLED" --valid 1000
  labels_of "$set"
  labelled "$set" $labels "$RUN/text/$set.train.jsonl" "$RUN/text/$set.valid.jsonl"
done

swept() { # FOLDER RATES words...: `rate`, the one of RATES whose run has the best validation
  [ -n "${DRY:-}" ] || mkdir -p "${1%/*}"
  once "${1%/*}/.${1##*/}" unitk sweep --over "lr=$2" --save-dir "$1" -- "${@:3}"
  # the first trial of the table is the best one
  [ ! -e "$1/sweep.json" ] ||
    rate=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["trials"][0]["lr"])' "$1/sweep.json")
}

rate_of() { # OBJECTIVE words...: the best of RATES at an eighth of the updates, by its own validation
  local steps=$(((STEPS + 7) / 8))
  rate=$LR
  [ -z "$RATES" ] || swept "$RUN/rates/$1" "$RATES" "${@:2}" "${fast[@]}" --max-steps "$steps" --valid-every "$steps" \
    --valid-texts 200 --save-every "$steps"
}

objective_of() { # OBJECTIVE: `name`, its task, `layout` and `judge`, how it is asked later, `learn` and `fast`, its training
  name=$1 layout=() judge=(--max-tokens "$MAX_TOKENS") fast=()
  [ -z "${FAST:-}" ] || read -ra fast <<<"$FAST" # what changes the speed of pre-training alone
  local words=(--task "$1") arch=modern_$size
  case $1 in
    hybrid) # as GPT-BERT: Charpentier and Samuel 2024, arXiv 2410.24159
      name=lm layout=(--task.layout mlm) judge+=(--task lm)
      words=(--task mlm=1 --task lm=1 --task.mlm.shift on --task.mlm.max-span 3 --task.mlm.rounding random
        --task.mlm.mask-ratio linear:value=0.3,floor=0.5) ;;
    glm_infill) words+=(--task.mixture 0.5,0,0.5) ;; # short spans and one long one
    unilm) words+=(--task.nsp off) ;; # its one label a text outweighs all hidden tokens of these updates
    pmlm) words+=(--task.pairs off) ;; # pairs of text runs are longer than the texts of the others
    mass) arch=modern_encdec_$size fast=() ;; # --static is for tasks of one tower
  esac
  stack=(--arch "$arch" --arch.dropout 0)
  learn=("${words[@]}" "${stack[@]}" --data "$RUN/data/text" --valid "$RUN/data/held-out/valid" --block-size "$BLOCK"
    --batch-texts "$TEXTS" "${pace[@]}" --lr-schedule wsd:warmup=0.016,decay=0.3 --optimizer.weight-decay 0.05
    --criterion.z-loss 1e-4)
}

counted() { # OBJECTIVE: RUN/counts/OBJECTIVE.json, what an update of it reads, is asked for and computes
  local name layout judge stack learn fast
  objective_of "$1"
  [ -n "${DRY:-}" ] || mkdir -p "$RUN/counts"
  once "$RUN/counts/.$1" python3 "$here/counts.py" --dest "$RUN/counts/$1.json" -- "${learn[@]}" --max-steps "$STEPS"
}

updates_of() { # OBJECTIVE WHAT: `steps`, updates that give it as much of WHAT as STEPS give `lm`; without WHAT, STEPS
  steps=$STEPS
  [ -n "$2" ] || return 0
  counted lm
  [ -n "${DRY:-}" ] || steps=$(python3 "$here/counts.py" --updates "$STEPS" "$2" "$RUN/counts/lm.json" "$RUN/counts/$1.json")
}

pace=(--max-tokens "$MAX_TOKENS" --log-every 50 --writers none --optimizer muon --keep-last 1)

prepared() { # OBJECTIVE: what its rows share: its counts and its rate
  local name layout judge stack learn fast rate
  counted "$1"
  objective_of "$1"
  rate_of "$1" "${learn[@]}" --seed 1
}

finished() { # ROW: RUN/rows/ROW, all that is asked of it
  local objective=${1%-*} seed=${1##*-} dir=$RUN/rows/$1 equal= set task labels from to best
  local name layout judge stack learn fast steps rate writer begins search common SOURCE TARGET FINETUNE_STEPS
  [[ $objective != *@* ]] || equal=${objective#*@} objective=${objective%@*}
  objective_of "${objective#scratch.}"
  writer=$(finetuned_as "$name")
  common=(--seed "$seed" "${pace[@]}" --lr-schedule linear:warmup=0.1)
  [ -n "${DRY:-}" ] || mkdir -p "$dir/questions" "$dir/summaries"
  if [ "$objective" = "scratch.$name" ]; then
    begins=("${stack[@]}") layout=(--task.layout "$name")
  else
    echo "== $1: pre-train"
    counted "$objective"
    updates_of "$objective" "$equal"
    rate_of "$objective" "${learn[@]}" --seed 1
    once "$dir/.pretrain" unitk train "${learn[@]}" "${fast[@]}" --seed "$seed" --save-dir "$dir/pretrain" --resume \
      --max-steps "$steps" --lr "$rate" --valid-every "$(((steps + 3) / 4))" --valid-texts 200 \
      --save-every "$(((STEPS + 9) / 10))"
    begins=(--init-from "$dir/pretrain/last" --arch.dropout 0)
    said "$dir/blimp.json" unitk evaluate --checkpoint "$dir/pretrain/last" "${judge[@]}" --pairs "$PAIRS" --output-format json \
      --output "$dir/pairs.jsonl" --overwrite
    [ ! -e "$LAMBADA" ] ||
      said "$dir/lambada.json" unitk evaluate --checkpoint "$dir/pretrain/last" "${judge[@]}" --last-word "$LAMBADA" \
        --output-format json
  fi
  echo "== $1: questions"
  SOURCE=96 TARGET=32 FINETUNE_STEPS=$QG_STEPS search=(--lenpen 1.2)
  finetuned "$dir/questions" "$RUN/data/questions" --task "$writer" "${begins[@]}" --valid-texts 300
  written "$dir/questions" "$RUN/data/questions"
  echo "== $1: summaries"
  SOURCE=224 TARGET=40 FINETUNE_STEPS=$SUM_STEPS search=(--min-len 12)
  finetuned "$dir/summaries" "$RUN/data/summaries" --task "$writer" "${begins[@]}"
  written "$dir/summaries" "$RUN/data/summaries"
  for set in $SETS; do
    labels_of "$set"
    rate=$GLUE_LR
    [ -z "$GLUE_RATES" ] || swept "$dir/$set-rates" "$GLUE_RATES" --task "$task" "${begins[@]}" "${layout[@]}" \
      --data "$RUN/data/$set" --batch-texts 32 --max-steps "$GLUE_STEPS" --valid-every "$(((GLUE_STEPS + 3) / 4))" "${best[@]}" "${common[@]}"
    FINETUNE_STEPS=$GLUE_STEPS FINETUNE_LR=$rate judged "$set" "$dir/$set" $task $labels \
      "$RUN/text/$set.dev.jsonl" "${begins[@]}" "${layout[@]}"
  done
  [ -n "${DRY:-}" ] || touch "$dir/finished"
}

tabulated() { # RUN/table.md of all that is finished
  # shellcheck disable=SC2086
  unless_dry python3 "$here/report.py" "$RUN" "$SUMMARIES/test.jsonl.gz" "$PAIRS" $ROWS
}

together() { # FUNCTION words...: call it for each of them, JOBS at a time
  local one running=0 failed=0
  for one in "${@:2}"; do
    if [ "$running" = "$JOBS" ]; then
      wait -n || failed=1
      running=$((running - 1))
    fi
    echo "$1: $one"
    "$1" "$one" >"$RUN/log/$1.$one" 2>&1 &
    running=$((running + 1))
  done
  while [ "$running" != 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
  done
  [ "$failed" = 0 ] || { echo "a row failed: $RUN/log has what it said" >&2; return 1; }
}

if [ "$JOBS" = 1 ] || [ -n "${DRY:-}" ]; then
  for row in $ROWS; do
    finished "$row"
    tabulated
  done
else
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
  mkdir -p "$RUN/log"
  mapfile -t shared < <(for row in $ROWS; do row=${row%-*} && echo "${row%@*}"; done | grep -v '^scratch' | sort -u)
  [[ $ROWS != *@* ]] || prepared lm # their lengths are told by its counts
  together prepared "${shared[@]}"
  # shellcheck disable=SC2086
  together finished $ROWS
  tabulated
fi

echo "checks: what would make the comparison void"
looked=("$RUN/data/questions" "$RUN/data/summaries") alone=()
for run in "$RUN"/rows/*/pretrain; do # those with other numbers of updates are not compared as equals
  case $run in *@*) alone+=("$run") ;; *) looked+=("$run") ;; esac
done
# what has hardly been trained knows sentences by their length alone
[ "$SETTING" = tiny ] || looked+=("$RUN"/rows/*/pairs.jsonl)
checked() { # of SciTLDR's dev and test abstracts, 1.3 % repeat papers of train
  local one status=0
  unitk check "${looked[@]}" --shared 0.02 || status=$?
  for one in "${alone[@]}"; do unitk check "$one" || status=$?; done
  return "$status"
}
[ -n "${DRY:-}" ] || checked | tee "$RUN/checks.txt" || echo "there are faults: read $RUN/checks.txt before the table" >&2
