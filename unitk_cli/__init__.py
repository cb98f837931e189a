"""The command line: `unitk VERB ...` runs a registered verb (`unitk/verbs/`)."""
