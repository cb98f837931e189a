"""Several labelled corpora at once: shared layers, and a head for each corpus (MT-DNN)."""
