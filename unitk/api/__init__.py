"""What a verb of the command line does, as a function: `unitk.preprocess`, `train`, `evaluate`.

arguments.py              keyword arguments are options with the names of the command line
train.py  evaluate.py     the functions, and `unitk_cli` prints what they find
loading.py                `unitk.load`, `unitk.load_module`
"""
