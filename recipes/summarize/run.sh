#!/usr/bin/env bash
# Summarization: pre-train, fine-tune, generate with beam 5, ROUGE and statistics.
#
#   recipes/summarize/run.sh                        the bundled sample of SciTLDR, from unitk-base-en, on a CPU
#   SIZE=small OBJECTIVE=unilm ...                  pre-train too: copy mlm lm unilm pmlm glm_infill mass; none: from scratch
#   DATASET=dialogsum DATA=path/to/data ...         scitldr-a dialogsum aeslc reuters21578 samsum cnndm
#                                                   xsum gigaword, in folders of these names
#   SIZE=base TEXTS="a.jsonl b.jsonl" ...           base models; text to pre-train on
#   SEED=2 RUN=runs/x ...                           another seed or place
#   PAPER=unilm-cnndm INIT=models/unilm ...         the settings of ../papers/unilm-cnndm; DRY=1 prints the plan
#   INIT=runs/x/pretrain ...                       a model that is pre-trained, with its vocabulary
#   VOCAB BLOCK SOURCE TARGET {PRETRAIN,FINETUNE}_{STEPS,TOKENS} MAX_TOKENS LR FINETUNE_LR: see ../stages.sh
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

[ -z "${PAPER:-}" ] || DATASET=${PAPER#*-} DATASET=${DATASET%-10k} SIZE=base
DATASET=${DATASET:-scitldr-a}
SIZE=${SIZE:-mini}
OBJECTIVE=${OBJECTIVE:-glm_infill}
DATA=${DATA:-$here/data}
RUN=${RUN:-runs/summarize-${PAPER:-$DATASET-$OBJECTIVE-$SIZE}}
SEED=${SEED:-1}
openstax=$here/../quickstart/data/openstax-ccby
begin "$openstax/openstax.train.jsonl.gz"
settings
HELDOUT=$openstax/openstax.valid.jsonl.gz copies=lead text=()

# the files of a set, what their fields mean, and how long its texts are
set=$DATA/$DATASET
given DATA "$set"
records() { # TRAIN VALID TEST SOURCE-FIELD TARGET-FIELDS words...
  pairs=(--input "$set/$1" --valid "$set/$2") test=(--test "$set/$3")
  test+=(--source-field "$4" --target-field "$5" "${@:6}")
}
lines() { # the source and target files of train, valid and test
  pairs=(--source-file "$set/$1" --target-file "$set/$2")
  pairs+=(--valid-source-file "$set/$3" --valid-target-file "$set/$4")
  test=(--test-source-file "$set/$5" --test-target-file "$set/$6")
}
longest() { # SOURCE TARGET, in tokens; small models read the beginning
  [ "$SIZE" = base ] || : "${SOURCE:=$([ "$SIZE" = mini ] && echo 224 || echo 64)}" "${TARGET:=$(($2 < 40 ? $2 : 40))}"
  : "${SOURCE:=$1}" "${TARGET:=$2}"
}
search=(--min-len 1)
case $DATASET in
  scitldr-a)
    records train.jsonl.gz dev.jsonl.gz test.jsonl.gz source target
    search=(--min-len 12)
    longest 300 64 ;;
  dialogsum) # three references in test
    records train.jsonl.gz dev.jsonl.gz test.jsonl.gz dialogue summary,summary1,summary2,summary3
    longest 300 80 ;;
  aeslc) # three more references in dev and test
    records train.jsonl.gz dev.jsonl.gz test.jsonl.gz body subject,ann0,ann1,ann2
    longest 250 24 ;;
  reuters21578) # no validation set; titles are in capitals
    records train.jsonl.gz unused.jsonl.gz test.jsonl.gz body title
    text+=(--vocab-normalization nmt_nfkc_cf)
    longest 250 32 ;;
  samsum) # its own files; one dialogue is empty
    records train.json val.json test.json dialogue summary --skip-empty
    longest 300 80 ;;
  cnndm) # made by collect.py; a highlight is a line
    records train.jsonl.gz valid.jsonl.gz test.jsonl.gz source target --sentence-mark "|" --skip-empty
    search=(--min-len 30)
    longest 360 120 ;;
  xsum) # made by collect.py
    records train.jsonl.gz valid.jsonl.gz test.jsonl.gz source target --skip-empty
    longest 400 60 ;;
  gigaword) # lines, as Rush et al. and those after them have them
    lines train.article.txt train.title.txt valid.article.filter.txt valid.title.filter.txt \
      input.txt task1_ref0.txt
    longest 120 32 ;;
  *) echo "DATASET $DATASET is none of those named at the top of this file" >&2; exit 2 ;;
esac
pairs+=("${test[@]}")
if [ -n "${PAPER:-}" ]; then published "$DATASET"; as_published; else stages; fi
unless_dry python3 "$here/report.py" "$RUN" "${test[@]}"
