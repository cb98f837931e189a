"""What `unitk check` looks at: a registered function a check, from subjects to findings.

shared.py   texts that train and held-out corpora share
floors.py   what counting words achieves
answers.py  targets in their sources, and words that give classes away
leaks.py    answers that their own questions can see, in layouts of the user's data
equal.py    runs that are compared: their data, their length, their seeds
batches.py  whether padding and batches change scores
scores.py   files of pair scores: ties, precision, length
words.py    texts as hashes of their words, which the checks compare
"""
