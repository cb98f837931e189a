"""How probable texts are to a model: `texts.py` scores them by any task, `share.py` computes what
they begin with once, `pairs.py` compares the two sentences of minimal pairs."""
