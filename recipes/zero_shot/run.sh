#!/usr/bin/env bash
# What a model that continues texts does unasked-for: last words, summaries after "TL;DR:", answers
# after "A:" (Radford et al. 2019, section 3), beside trivial baselines.
#
#   recipes/zero_shot/run.sh                                unitk-base-en, bundled samples, minutes on a CPU
#   CHECKPOINT=models/gpt2 recipes/zero_shot/run.sh         another model; OPTIONS says how it is asked
#   LAMBADA=lambada_test.jsonl.gz SUMMARIES=test.jsonl.gz QUESTIONS=dev-v1.1.json recipes/zero_shot/run.sh
#   TEXTS WORDS SENTENCES SEED RUN: see README.md
#
# What is finished is not done again: run it once more to go on after a stop.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

RUN=${RUN:-runs/zero-shot}
SEED=${SEED:-1}
CHECKPOINT=${CHECKPOINT:-unitk-base-en}
# this one fills blanks as well, and has learnt pairs, whose sources end with [SEP]
[ "$CHECKPOINT" != unitk-base-en ] || : "${OPTIONS:=--task lm --task.lm.delimiter off}"
read -ra options <<<"${OPTIONS:-}"
sample=$here/../quickstart/data
last=(--passages "$sample/openstax-ccby/openstax.valid.jsonl.gz")
SUMMARIES=${SUMMARIES:-$here/../summarize/data/scitldr-a/test.jsonl.gz}
QUESTIONS=${QUESTIONS:-$sample/squad-v1.1-nqg-split/dev.json.gz}
[ -z "${LAMBADA:-}" ] || { given LAMBADA "$LAMBADA"; last=(--last-words "$LAMBADA"); }
given SUMMARIES "$SUMMARIES"
given QUESTIONS "$QUESTIONS"
mine "$RUN"

echo "== 1/4 texts"
once "$RUN/.texts" python3 "$here/collect.py" "$RUN/text" "${last[@]}" \
  --summaries "$SUMMARIES" --questions "$QUESTIONS" --texts "${TEXTS:-300}" --words "${WORDS:-120}"

echo "== 2/4 last words"
once "$RUN/.words" fresh "$RUN/last_words.jsonl" unitk evaluate --checkpoint "$CHECKPOINT" "${options[@]}" --output-format json \
  --last-word "$RUN/text/last_words.jsonl" --output "$RUN/last_words.jsonl"

asked() { # SET words...: RUN/SET.jsonl, what the model writes after each prompt of RUN/text/SET.jsonl
  local set=$1
  once "$RUN/.$set" fresh "$RUN/$set.jsonl" unitk generate --checkpoint "$CHECKPOINT" "${options[@]}" \
    --input "$RUN/text/$set.jsonl" --source-field prompt --output "$RUN/$set.jsonl" --output-format jsonl \
    --seed "$SEED" "${@:2}"
}
echo "== 3/4 summaries"
for set in plain tldr; do # drawn among the two likeliest tokens, as in section 3.6
  asked "$set" --sampling --sampling-topk 2 --sampling-topp 1 --no-repeat-ngram-size 0 --max-len 100
done
echo "== 4/4 answers"
for set in alone answers; do # greedily, as in section 3.8
  asked "$set" --beam 1 --no-repeat-ngram-size 0 --max-len 20
done
unless_dry python3 "$here/report.py" "$RUN" --sentences "${SENTENCES:-1}" --seed "$SEED"
