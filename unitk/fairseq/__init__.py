"""fairseq's data, dictionaries, flags and checkpoints, and unitk's objectives under its trainer."""
