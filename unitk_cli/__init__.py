"""The command line: `unitk VERB ...` runs a registered verb (`unitk/verbs/`)."""

import sys


def run_unitk() -> None:
    """Entry point: Ctrl-C while modules are imported prints nothing; `main` knows later ones."""
    try:
        from unitk_cli.main import main
    except KeyboardInterrupt:
        eval("0")  # or Python, which met it in an exec, ends by the signal, not with a code
        sys.exit(130)
    main()
