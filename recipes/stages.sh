# What the recipes share. From the caller: OBJECTIVE, SIZE, RUN, SEED, HELDOUT (text to validate
# on) and `copies`, which pairs of copies.py OBJECTIVE=copy learns.
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v unitk >/dev/null || { echo "unitk is not installed here: run make quickstart" >&2; exit 2; }
export PYTHONPATH=$recipes${PYTHONPATH:+:$PYTHONPATH} # for shared.py

finetuned_as() { # OBJECTIVE: the task that its models are fine-tuned as
  case $1 in mlm) echo unilm ;; none | copy) echo "${TASK:-glm_infill}" ;; *) echo "$1" ;; esac
}

arch_of() { # OBJECTIVE SIZE: its architecture; SIZE is mini, tiny, small or base
  [ "$2" != mini ] || { echo qwen3_15m; return; }
  case $1 in
    mlm | unilm) echo "unilm_$2" ;; pmlm) echo "unilm2_$2" ;; glm_infill) echo "glm_$2" ;;
    mass) echo "mass_$2" ;; seq2seq) echo "bart_$2" ;;
    lm) case $2 in tiny) echo gpt2_tiny ;; small) echo gpt2_mini ;; *) echo gpt2_small ;; esac ;;
    *) echo "no such objective: $1 (copy, mlm, lm, unilm, pmlm, glm_infill, mass, seq2seq)" >&2; return 2 ;;
  esac
}

finetuning_rate() { # TASK: the learning rate that was published for its models of 12 layers and more
  case $1 in
    mass) echo 5e-4 ;; unilm | pmlm) echo 7e-5 ;; lm) echo 6.25e-5 ;; *) echo 3e-5 ;;
  esac
}

settings() { # what SIZE means, where the environment says nothing else
  model=() optimizer=(--optimizer adamw) vocab=${INIT:-$RUN/data/text/train}
  case $SIZE in
    mini) # a model that comes with unitk: minutes on a CPU
      : "${MAX_TOKENS:=4096}" "${FINETUNE_TOKENS:=2048}" "${FINETUNE_STEPS:=400}" "${LR:=2e-3}"
      vocab=${INIT:-unitk-base-en} optimizer=(--optimizer muon) model=(--arch.dropout 0)
      case $OBJECTIVE in
        glm_infill) # an adapter writes as well as a model whose weights are all tuned, after half the time
          : "${INIT:=unitk-base-en}" "${FINETUNE_LR:=3e-3}"
          optimizer=(--adapter lora:rank=32) ;;
        none) ;;
        *) echo "OBJECTIVE $OBJECTIVE needs SIZE=small or base, which pre-train; SIZE=mini begins with unitk-base-en" >&2
          exit 2 ;;
      esac ;;
    tiny | small) # minutes on a CPU, which calls for short sources and few words
      : "${VOCAB:=4000}" "${BLOCK:=128}" "${MAX_TOKENS:=4096}" "${PRETRAIN_TOKENS:=2048}"
      : "${PRETRAIN_STEPS:=900}" "${FINETUNE_STEPS:=300}" "${FINETUNE_TOKENS:=2048}" "${LR:=3e-3}" ;;
    base) # 12 layers of 768, for a GPU
      : "${VOCAB:=30000}" "${BLOCK:=512}" "${MAX_TOKENS:=32768}" "${PRETRAIN_TOKENS:=65536}"
      : "${PRETRAIN_STEPS:=20000}" "${FINETUNE_STEPS:=10000}" "${FINETUNE_TOKENS:=16384}" "${LR:=2e-4}" ;;
    *) echo "SIZE must be mini, small or base, got $SIZE" >&2; exit 2 ;;
  esac
  # a small model, or one that was not pre-trained, is fine-tuned as fast as it is pre-trained
  local task
  task=$(finetuned_as "$OBJECTIVE")
  if [ "$SIZE" = base ] && [ "$OBJECTIVE${INIT:-}" != none ]; then
    : "${FINETUNE_LR:=$(finetuning_rate "$task")}"
  fi
  : "${FINETUNE_LR:=$LR}"
  # 3 layers of 128 without dropout: a few minutes are too short for it
  [ "$SIZE" != small ] ||
    model=(--arch.num-layers 3 --arch.width 128 --arch.ffn-width 512 --arch.init-std 0.05 --arch.dropout 0)
  whole BLOCK MAX_TOKENS PRETRAIN_TOKENS PRETRAIN_STEPS FINETUNE_STEPS FINETUNE_TOKENS
  rates LR FINETUNE_LR
}

mine() { # DIR: make it, or refuse one that holds something and that no recipe made
  if [ -e "$1" ] && [ ! -e "$1/.recipe" ] && [ -n "$(ls -A "$1")" ]; then
    echo "RUN: $1 holds files that no recipe made: name another folder, or: touch $1/.recipe" >&2
    exit 2
  fi
  [ -n "${DRY:-}" ] || { mkdir -p "$1"; touch "$1/.recipe"; }
}

begin() { # the files to pre-train on, as the user names them in TEXTS or as given: the array `texts`
  mine "$RUN"
  texts=("$@")
  [ -z "${TEXTS:-}" ] || read -ra texts <<<"$TEXTS"
}

known() { # VARIABLE words...: refuse one that has another word, before any work is done
  local one
  for one in ${!1}; do
    [[ " ${*:2} " == *" $one "* ]] || { echo "$1: there is no $one (there are: ${*:2})" >&2; exit 2; }
  done
}

whole() { # VARIABLES...: refuse one that holds anything but whole numbers, before any work is done
  each '^[1-9][0-9]*$' "a whole number above 0" "$@"
}

rates() { # VARIABLES...: the same for learning rates
  each '^([0-9]+\.?|[0-9]*\.[0-9]+)([eE][+-]?[0-9]+)?$' "a number such as 1e-3" "$@"
}

each() { # PATTERN WHAT VARIABLES...: refuse one that has a word of another form
  local name one
  for name in "${@:3}"; do
    for one in ${!name:-}; do
      [[ $one =~ $1 ]] || { echo "$name must be $2, got $one" >&2; exit 2; }
    done
  done
}

given() { # VARIABLE paths...: refuse it before any work is done, if one of them is not there
  local path
  for path in "${@:2}"; do
    [ -e "$path" ] || { echo "$1: there is no $path" >&2; exit 2; }
  done
}

sentences() { # DIR: RUN/train.txt, valid.txt and test.txt, a sentence a line, of its files, also .gz
  local split
  for split in train valid test; do
    compgen -G "$1/$split.txt*" >/dev/null || { echo "DATA: $1 lacks $split.txt or $split.txt.gz" >&2; exit 2; }
  done
  once "$RUN/.sentences" unpacked "$1"
}

unpacked() { # DIR
  local split file
  for split in train valid test; do
    file=$(ls "$1/$split".txt* | head -n 1)
    case $file in *.gz) gzip -dc "$file" ;; *) cat "$file" ;; esac >"$RUN/$split.txt"
  done
}

published() { # SUFFIX: the array `paper`, files with the settings of PAPER; SUFFIX: the set that it is about
  local all=() one
  for one in "$recipes"/papers/*-"$1"*/train.yaml; do all+=("$(basename "$(dirname "$one")")"); done
  begins_with train "${all[@]}"
  python3 "$recipes/papers/plan.py" "$paper" "${PAPER#*-}" -- --config "$paper/train.yaml"
}

begins_with() { # NAME papers...: `paper`, one of these whose NAME.yaml is followed; its first line
  known PAPER "${@:2}"
  paper=$recipes/papers/$PAPER SIZE=base
  [ -n "${INIT:-}" ] || { echo "INIT: PAPER=$PAPER begins with a model of its authors; see papers/README.md" >&2; exit 2; }
  head -n 1 "$paper/$1.yaml" | cut -c 3-
}

labels_as_published() { # SET: its labels are learnt with the settings of PAPER; `own`: options of training
  local lr texts updates warmup figure
  vocab=$INIT init=(--init-from "$INIT") scratch=() common=(--seed "$SEED")
  own=(--config "$paper/finetune.yaml")
  if [ -e "$paper/glue.tsv" ]; then
    grep -q "^$1"$'\t' "$paper/glue.tsv" || { echo "SETS: PAPER=$PAPER has no settings for $1" >&2; exit 2; }
    IFS=$'\t' read -r _ lr texts updates warmup figure < <(grep "^$1"$'\t' "$paper/glue.tsv")
    own+=(--lr "$lr" --batch-texts "$texts" --max-epochs none --max-steps "$updates" --lr-schedule "linear:warmup=$warmup")
    echo "the authors' figure on the dev set of $1: $figure"
  fi
  python3 "$recipes/papers/plan.py" "$paper" "$1" -- "${own[@]}"
}

config() { # NAME: options that read the settings of PAPER for a verb, if there are some
  [ ! -e "$paper/$1.yaml" ] || printf '%s\n' --config "$paper/$1.yaml"
}

as_published() { # from files to RUN/written.jsonl with the settings of PAPER
  local settings=()
  mapfile -t settings < <(config preprocess)
  once "$RUN/.pairs" unitk preprocess "${settings[@]}" "${pairs[@]}" --vocab "$INIT" --dest "$RUN/data/pairs" --overwrite
  once "$RUN/.finetune" unitk train --config "$paper/train.yaml" --data "$RUN/data/pairs" --init-from "$INIT" \
    --save-dir "$RUN/finetune" --resume --seed "$SEED"
  once "$RUN/.generate" unitk generate --config "$paper/generate.yaml" --checkpoint "$RUN/finetune" \
    --input "$RUN/data/pairs/test" --output-format jsonl --output "$RUN/written.jsonl" --resume
}

once() { # MARK words...: run them, unless MARK says that they were run to their end
  if [ -n "${DRY:-}" ]; then
    [ "$2" != fresh ] || set -- "$1" "${@:4}"
    printf '$'; printf ' %q' "${@:2}"; echo; return
  fi
  if [ -e "$1" ]; then unlike "$@"; return; fi
  "${@:2}" || return
  options "${@:2}" >"$1"
}

unless_dry() { # words...: run them, except where DRY=1 prints what would be run
  [ -n "${DRY:-}" ] || "$@"
}
[ -z "${DRY:-}" ] || unitk() { once - unitk "$@"; }

said() { # FILE words...: run them, unless FILE has what they print
  local mark
  mark=$(dirname "$1")/.$(basename "$1")
  if [ -n "${DRY:-}" ]; then once "$mark" "${@:2}"; return; fi
  if [ -e "$1" ]; then unlike "$mark" "${@:2}"; return; fi
  "${@:2}" >"$1.part" || return
  options "${@:2}" >"$mark"
  mv "$1.part" "$1"
}

options() { # words...: each option with its values, a line each
  local one line=
  for one; do
    one=${one//"$RUN"\//}
    case $one in -*) printf '%s\n' "$line"; line=$one ;; *) line+=${line:+ }$one ;; esac
  done
  printf '%s\n' "$line"
}

unlike() { # MARK words...: say where the words that made what is finished were others
  [ -s "$1" ] || return 0
  local was now
  now=$(options "${@:2}")
  was=$(grep -vxFe "$now" "$1" || true) now=$(grep -vxFf "$1" <<<"$now" || true)
  [ -z "$was$now" ] || echo "$1: kept as it was made${was:+, with ${was//$'\n'/ }}${now:+, not with ${now//$'\n'/ }};" \
    "another RUN makes it anew" >&2
}

fresh() { # DIR words...: run them without what a stopped run left in DIR
  rm -rf "$1"
  "${@:2}"
}

pretrain() { # words...: options of the task, the data and their lengths
  # one label of next sentences a text outweighs all hidden tokens of updates this small
  case $OBJECTIVE-$SIZE in *-base) ;; mlm-* | unilm-*) set -- "$@" --task.nsp off ;; esac
  once "$RUN/.pretrain" unitk train "$@" "${model[@]}" --save-dir "$RUN/pretrain" --resume \
    --batch-tokens "$PRETRAIN_TOKENS" --max-steps "$PRETRAIN_STEPS" --lr "$LR" \
    --valid-every "$(((PRETRAIN_STEPS + 3) / 4))" "${common[@]}"
  init=(--init-from "$RUN/pretrain/last")
}

beginnings() { # HELDOUT: what learns labels begins with: the arrays `init` and `scratch`, and `vocab`
  local arch options
  arch=$(arch_of "$OBJECTIVE" "$SIZE")
  common=(--seed "$SEED" --lr-schedule linear:warmup=0.1 --max-tokens "$MAX_TOKENS" --log-every 50)
  if [ -n "${INIT:-}" ]; then
    echo "== pre-trained: $INIT"
    vocab=$INIT init=(--init-from "$INIT")
    options=$(python3 "$recipes/scratch.py" "$INIT")
    mapfile -t scratch <<<"$options"
    return
  fi
  echo "== pre-train: $OBJECTIVE"
  vocab=$RUN/data/text/train scratch=(--task.layout "$OBJECTIVE" --arch "$arch" "${model[@]}")
  once "$RUN/.text" unitk preprocess "${texts[@]/#/--input=}" --valid "$1" --sentences punct \
    --vocab-size "$VOCAB" --byte-fallback --dest "$RUN/data/text" --overwrite
  pretrain --task "$OBJECTIVE" --arch "$arch" --data "$RUN/data/text" --block-size "$BLOCK"
}

learnt() { # SET TASK LABELS TEST words...: RUN/SET/ROW.json, the scores on TEST of both models, which learn RUN/data/SET
  # words: options of training; the arrays `from` and `to`: the fields of texts and labels; `asked`:
  # options of predict
  local row begins
  for row in pretrained ${scratch[0]:+scratch}; do
    begins=("${init[@]}")
    [ "$row" = pretrained ] || begins=("${scratch[@]}")
    judged "$1" "$RUN/$1/$row" "$2" "$3" "$4" "${begins[@]}" "${optimizer[@]}" "${@:5}"
  done
}

labelled() { # SET LABELS TRAIN DEV: RUN/data/SET
  once "$RUN/.$1" unitk preprocess --input "$3" --valid "$4" "${from[@]}" "${to[@]}" --labels "$2" \
    --vocab "$vocab" --dest "$RUN/data/$1" --overwrite
}

judged() { # SET OUT TASK LABELS TEST words...: OUT, a model that learnt the set, and OUT.json, its scores
  local folder=${2%/*} row=${2##*/} best=() length=("${own[@]}")
  [ -n "${PAPER:-}" ] || length=(--batch-texts 32 --max-steps "$FINETUNE_STEPS" --lr "$FINETUNE_LR"
    --valid-every "$(((FINETUNE_STEPS + 3) / 4))")
  # few updates overfit: the loss is lowest long before most labels are right
  case $3 in
    classify) best=(--best-metric valid/class/correct) ;;
    tag) best=(--best-metric valid/spans/f1) ;;
  esac
  echo "== ${2#"$RUN/"}"
  [ -n "${DRY:-}" ] || mkdir -p "$folder"
  once "$folder/.$row" fresh "$2" unitk train --task "$3" "${@:6}" --data "$RUN/data/$1" --save-dir "$2" \
    "${length[@]}" "${best[@]}" "${common[@]}"
  once "$folder/.$row.predict" fresh "$2.jsonl" unitk predict --checkpoint "$2" --input "$5" "${from[@]}" \
    --truncate "${asked[@]}" --output "$2.jsonl"
  said "$2.json" unitk score --metric "$4" --hypotheses "$2.jsonl" --references "$5" "${to[@]}" --output-format json
}

finetuned() { # DIR PAIRS words...: DIR/finetune, a model that learnt to write
  once "$1/.finetune" fresh "$1/finetune" unitk train "${@:3}" --criterion.label-smoothing 0.1 --data "$2" \
    --save-dir "$1/finetune" --max-source-len "$SOURCE" --max-target-len "$TARGET" --batch-tokens "$FINETUNE_TOKENS" \
    --max-steps "$FINETUNE_STEPS" --lr "$FINETUNE_LR" --valid-every "$(((FINETUNE_STEPS + 3) / 4))" "${common[@]}"
}

written() { # DIR PAIRS: DIR/written.jsonl, what it writes for the test set; the array `search`: options
  once "$1/.generate" unitk generate --checkpoint "$1/finetune" --input "$2/test" --beam 5 --max-len "$TARGET" \
    --no-repeat-ngram-size 3 "${search[@]}" --truncate --max-source-len "$SOURCE" --output-format jsonl \
    --output "$1/written.jsonl" --overwrite
}

stages() { # from files to RUN/written.jsonl: the arrays `text`, `pairs` and `search` are options
  local task arch init=() common form
  task=$(finetuned_as "$OBJECTIVE") arch=$(arch_of "$task" "$SIZE") form=(--arch "$arch")
  # a whole target, each of its tokens asked for, teaches more in few updates than hidden tokens
  [ "$task" != unilm ] || [ "$SIZE" = base ] || form+=(--task.position-shift on --task.target-mask-ratio 0)
  common=(--seed "$SEED" --lr-schedule linear:warmup=0.1 --max-tokens "$MAX_TOKENS"
    --log-every 50)
  local lengths=(--max-source-len "$SOURCE" --max-target-len "$TARGET")

  echo "== 1/5 preprocess"
  [ "$vocab" != "$RUN/data/text/train" ] ||
    once "$RUN/.text" unitk preprocess "${text[@]}" "${texts[@]/#/--input=}" --valid "$HELDOUT" \
      --sentences punct --vocab-size "$VOCAB" --byte-fallback --dest "$RUN/data/text" --overwrite
  once "$RUN/.pairs" unitk preprocess "${pairs[@]}" --vocab "$vocab" \
    --dest "$RUN/data/pairs" --overwrite

  if [ -n "${INIT:-}" ]; then
    echo "== 2/5 pre-trained: $INIT"
    init=(--init-from "$INIT") form=() # the architecture is the checkpoint's
  elif [ "$OBJECTIVE" = copy ]; then
    local made=(--source-field source --target-field target) ending=jsonl
    [ "$copies" = lead ] || made=(--window "$WINDOW") ending=json
    local copy=(python3 "$recipes/copies.py" "$copies" --longest $((TARGET > 24 ? TARGET * 5 / 8 : 15)))
    once "$RUN/.copies" "${copy[@]}" --texts "${texts[@]}" --dest "$RUN/copies.$ending"
    once "$RUN/.heldout" "${copy[@]}" --texts "$HELDOUT" --dest "$RUN/heldout.$ending"
    once "$RUN/.copied" unitk preprocess --input "$RUN/copies.$ending" --valid "$RUN/heldout.$ending" \
      "${made[@]}" --vocab "$RUN/data/text/train" --dest "$RUN/data/copies" --overwrite
    echo "== 2/5 pre-train: find a sentence and copy it"
    pretrain --task "$task" --arch "$arch" --data "$RUN/data/copies" "${lengths[@]}"
  elif [ "$OBJECTIVE" != none ]; then
    echo "== 2/5 pre-train: $OBJECTIVE"
    pretrain --task "$OBJECTIVE" --arch "$(arch_of "$OBJECTIVE" "$SIZE")" --data "$RUN/data/text" \
      --block-size "$BLOCK"
  fi

  echo "== 3/5 fine-tune: $task"
  finetuned "$RUN" "$RUN/data/pairs" --task "$task" "${form[@]}" "${model[@]}" "${init[@]}" "${optimizer[@]}"

  echo "== 4/5 generate"
  written "$RUN" "$RUN/data/pairs"

  echo "== 5/5 score"
}
