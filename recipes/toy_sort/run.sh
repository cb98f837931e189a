#!/usr/bin/env bash
# recipes/toy_copy with another rule; the same variables. It takes lm twice as long to learn.
set -euo pipefail
RULE=sort STEPS=${STEPS:-1000} exec bash "$(dirname "${BASH_SOURCE[0]}")/../toy_copy/run.sh"
