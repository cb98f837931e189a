#!/usr/bin/env bash
# recipes/toy_copy with another rule; the same variables.
set -euo pipefail
RULE=reverse exec bash "$(dirname "${BASH_SOURCE[0]}")/../toy_copy/run.sh"
