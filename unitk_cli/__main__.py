"""`python -m unitk_cli` is `unitk`."""

from unitk_cli.main import main

main()
