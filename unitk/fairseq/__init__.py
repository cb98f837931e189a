"""fairseq's data, dictionaries, options and checkpoints, and unitk's objectives in its trainer."""
