#!/usr/bin/env bash
# recipes/toy_copy with another rule, which takes more updates; the same variables.
set -euo pipefail
RULE=reverse STEPS=${STEPS:-1000} exec bash "$(dirname "${BASH_SOURCE[0]}")/../toy_copy/run.sh"
