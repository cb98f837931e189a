# What the recipes share. From the caller: OBJECTIVE, SIZE, RUN, SEED.
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v unitk >/dev/null || { echo "unitk is not installed here: run make quickstart" >&2; exit 2; }
export PYTHONPATH=$recipes${PYTHONPATH:+:$PYTHONPATH} # for reports that share stages.py

finetuned_as() { # OBJECTIVE: the task that its models are fine-tuned as
  case $1 in mlm) echo unilm ;; none) echo "${TASK:-glm_infill}" ;; *) echo "$1" ;; esac
}

arch_of() { # OBJECTIVE SIZE: its architecture; SIZE is tiny, small or base
  case $1 in
    mlm | unilm) echo "unilm_$2" ;; pmlm) echo "unilm2_$2" ;; glm_infill) echo "glm_$2" ;;
    mass) echo "mass_$2" ;; seq2seq) echo "bart_$2" ;;
    lm) case $2 in tiny) echo gpt2_tiny ;; small) echo gpt2_mini ;; *) echo gpt2_small ;; esac ;;
    *) echo "no such objective: $1 (mlm, lm, unilm, pmlm, glm_infill, mass, seq2seq)" >&2; return 2 ;;
  esac
}

settings() { # what SIZE means, where the environment says nothing else
  case $SIZE in
    tiny | small) # 4 layers of 256, minutes on a CPU
      : "${VOCAB:=8000}" "${BLOCK:=256}" "${MAX_TOKENS:=4096}" "${PRETRAIN_TOKENS:=4096}"
      : "${PRETRAIN_STEPS:=150}" "${FINETUNE_STEPS:=800}" "${FINETUNE_TOKENS:=1024}" "${LR:=1e-3}" ;;
    base) # 12 layers of 768, for a GPU
      : "${VOCAB:=30000}" "${BLOCK:=512}" "${MAX_TOKENS:=32768}" "${PRETRAIN_TOKENS:=65536}"
      : "${PRETRAIN_STEPS:=20000}" "${FINETUNE_STEPS:=10000}" "${FINETUNE_TOKENS:=16384}" "${LR:=2e-4}" ;;
    *) echo "SIZE must be small or base, got $SIZE" >&2; exit 2 ;;
  esac
}

once() { # MARK words...: run them, unless MARK says that they were run to their end
  local mark=$1
  shift
  [ -e "$mark" ] && return
  "$@"
  touch "$mark"
}

fresh() { # DIR words...: run them without what a stopped run left in DIR
  rm -rf "$1"
  "${@:2}"
}

stages() { # from files to RUN/written.jsonl: the arrays `text`, `pairs` and `search` are options
  local task arch init=() common
  task=$(finetuned_as "$OBJECTIVE") arch=$(arch_of "$task" "$SIZE")
  common=(--seed "$SEED" --lr "$LR" --lr-schedule linear:warmup=0.1 --max-tokens "$MAX_TOKENS"
    --log-every 50)
  mkdir -p "$RUN"

  echo "== 1/5 preprocess"
  once "$RUN/.text" unitk preprocess "${text[@]}" --sentences punct --vocab-size "$VOCAB" --byte-fallback \
    --dest "$RUN/data/text" --overwrite
  once "$RUN/.pairs" unitk preprocess "${pairs[@]}" --vocab "$RUN/data/text/train" \
    --dest "$RUN/data/pairs" --overwrite

  if [ "$OBJECTIVE" != none ]; then
    echo "== 2/5 pre-train: $OBJECTIVE"
    once "$RUN/.pretrain" unitk train --task "$OBJECTIVE" --arch "$(arch_of "$OBJECTIVE" "$SIZE")" \
      --data "$RUN/data/text" --save-dir "$RUN/pretrain" --resume --block-size "$BLOCK" \
      --batch-tokens "$PRETRAIN_TOKENS" --max-steps "$PRETRAIN_STEPS" \
      --valid-every "$(((PRETRAIN_STEPS + 3) / 4))" "${common[@]}"
    init=(--init-from "$RUN/pretrain/last")
  fi

  echo "== 3/5 fine-tune: $task"
  once "$RUN/.finetune" fresh "$RUN/finetune" unitk train --task "$task" --arch "$arch" "${init[@]}" \
    --criterion.label-smoothing 0.1 --data "$RUN/data/pairs" --save-dir "$RUN/finetune" \
    --max-source-len "$SOURCE" --max-target-len "$TARGET" \
    --batch-tokens "$FINETUNE_TOKENS" --max-steps "$FINETUNE_STEPS" \
    --valid-every "$(((FINETUNE_STEPS + 3) / 4))" "${common[@]}"

  echo "== 4/5 generate"
  once "$RUN/.generate" unitk generate --checkpoint "$RUN/finetune" --input "$RUN/data/pairs/test" \
    --beam 5 --max-len "$TARGET" --no-repeat-ngram-size 3 "${search[@]}" --truncate \
    --output-format jsonl --output "$RUN/written.jsonl"

  echo "== 5/5 score"
}
