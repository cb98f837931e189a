"""`python -m unitk` is `unitk`."""

import runpy

runpy.run_module("unitk_cli", run_name="__main__")
