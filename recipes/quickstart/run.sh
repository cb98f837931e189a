#!/usr/bin/env bash
# `unitk quickstart`, whose options the environment gives:
#
#   recipes/quickstart/run.sh                        the bundled sample, about ten minutes
#   DATA=path/to/full/data recipes/quickstart/run.sh the full set, in a folder of the same name
#   RUN=runs/mine STEPS=2000 INIT=runs/x ...         another place, length, or model to begin with
set -euo pipefail
command -v unitk >/dev/null || { echo "unitk is not installed here: run make quickstart" >&2; exit 2; }
${DRY:+echo $} unitk quickstart ${DATA:+--data "$DATA/squad-v1.1-nqg-split"} ${RUN:+--save-dir "$RUN"} \
  ${STEPS:+--max-steps "$STEPS"} ${INIT:+--init-from "$INIT"}
