#!/usr/bin/env bash
# From a model that comes with unitk to scored questions: preprocess, fine-tune unitk-mini-en on
# question generation, generate with beam 5, score; then what the models do without fine-tuning.
#
#   recipes/quickstart/run.sh                        the bundled sample, a few minutes
#   DATA=path/to/full/data recipes/quickstart/run.sh the full set, in a folder of the same name
#   RUN=runs/mine STEPS=2000 INIT=runs/x ...         another place, length, or model to begin with
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

questions=${DATA:-$here/data}/squad-v1.1-nqg-split
INIT=${INIT:-unitk-mini-en}
RUN=${RUN:-runs/quickstart}
STEPS=${STEPS:-600}
began=$SECONDS
mine "$RUN"
fresh "$RUN" mine "$RUN"

echo "== 1/4 preprocess"
unitk preprocess --input "$questions/train.json.gz" --valid "$questions/dev.json.gz" \
  --test "$questions/test.json.gz" --window 96 --vocab "$INIT" --dest "$RUN/data"

echo "== 2/4 fine-tune on question generation"
unitk train --config "$here/finetune.yaml" --data "$RUN/data" --init-from "$INIT" \
  --save-dir "$RUN/finetune" --max-steps "$STEPS"

echo "== 3/4 generate and score"
unitk generate --checkpoint "$RUN/finetune" --input "$RUN/data/test" --beam 5 --max-len 32 \
  --lenpen 1.2 --no-repeat-ngram-size 3 --output-format jsonl --output "$RUN/written.jsonl"
unitk plot "$RUN/finetune" --output "$RUN/loss.png"
python3 "$here/report.py" "$RUN" $((SECONDS - began))

echo "== 4/4 without fine-tuning"
echo "-- unitk-mini-en fills blanks"
unitk generate --checkpoint unitk-mini-en --infill "She opened the [MASK] and put her [MASK] on the table." --beam 5
echo "-- it continues a text"
printf '%s\n' "The old man opened the door" "It was a cold night in December, and" >"$RUN/beginnings.txt"
unitk generate --checkpoint unitk-mini-en --task lm --task.lm.delimiter off \
  --input "$RUN/beginnings.txt" --sampling --sampling-topp 0.5 --no-repeat-ngram-size 3 --max-len 40
echo "-- unitk-mini-en-questions, which learnt from all of SQuAD, asks about a passage"
bridge="The bridge across the river was built in three years by two hundred workers, most of them from Italy."
printf '%s\t%s\n' "three years" "$bridge" "two hundred workers" "$bridge" >"$RUN/passages.txt"
unitk generate --checkpoint unitk-mini-en-questions --input "$RUN/passages.txt" --beam 5 --lenpen 1.2 \
  --no-repeat-ngram-size 3 --max-len 32
echo "-- unitk-vae-en walks from one sentence to another"
unitk latent interpolate "he is a teacher ." "where do you live ?" --steps 6 \
  --checkpoint unitk-vae-en
