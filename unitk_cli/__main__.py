"""`python -m unitk_cli` is `unitk`."""

from unitk_cli import run_unitk

run_unitk()
