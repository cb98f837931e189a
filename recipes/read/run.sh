#!/usr/bin/env bash
# What models write for texts that nobody trained on, read by eye: fills, continuations, questions,
# analogies, walks and samples, with default options. Verdicts are kept, so that only what is new is
# read again.
#
#   recipes/read/run.sh                                      the models that come with unitk
#   BASE=runs/base ASKS=runs/questions RUN=runs/mine ...     others
#   TEXTS=DIR ...                                            other texts in files of the same names
#
# Write a verdict (good, off, broken) into the first column of RUN/report.tsv and run it once more.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../stages.sh"

RUN=${RUN:-runs/read}
TEXTS=${TEXTS:-$here/texts}
BASE=${BASE:-unitk-base-en}
ASKS=${ASKS:-unitk-base-en-questions}
LATENT=${LATENT:-unitk-vae-en}
given TEXTS "$TEXTS"/{fills,continuations,questions,analogies,walks}.txt
mine "$RUN"

said "$RUN/fills.txt" unitk generate --checkpoint "$BASE" --infill "$TEXTS/fills.txt"
said "$RUN/continuations.txt" unitk generate --checkpoint "$BASE" --input "$TEXTS/continuations.txt"
said "$RUN/questions.txt" unitk generate --checkpoint "$ASKS" --input "$TEXTS/questions.txt"
said "$RUN/analogies.txt" unitk latent analogy --checkpoint "$LATENT" --input "$TEXTS/analogies.txt"
said "$RUN/walks.txt" unitk latent interpolate --steps 5 --checkpoint "$LATENT" --input "$TEXTS/walks.txt"
said "$RUN/samples.txt" unitk latent sample --count 20 --checkpoint "$LATENT"
unless_dry python3 "$here/report.py" "$RUN" "$TEXTS" "$here/verdicts.tsv"
