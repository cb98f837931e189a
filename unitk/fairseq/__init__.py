"""fairseq's data-bin folders and options, and unitk's objectives in its trainer."""
