"""How probable texts are to a model: `texts.py` scores them by any task, `share.py` computes what
they begin with once. `pairs.py` compares the sentences of minimal pairs, `continuations.py` last
words and choices, `windows.py` reads long texts. `harness.py` answers lm-evaluation-harness."""
