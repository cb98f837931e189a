"""What `unitk check` looks at: a registered function a check, from subjects to findings.

shared.py   texts that train and held-out corpora share
floors.py   what counting words achieves
leaks.py    answers that their own questions can see, in layouts of the user's data
equal.py    runs that are compared: their data, their length, their seeds
batches.py  whether padding and batches change scores
scores.py   files of pair scores: ties, precision, length
"""
