"""Standard input to standard output: each sentence, a tab, and of which kind it is.

The kind is read off the words: what a probe can find is a form, no meaning.
"""

import argparse
import sys

SUBJECTS = {"i": "I, we", "we": "I, we", "he": "he, she", "she": "he, she", "you": "you"}

argparse.ArgumentParser(description=__doc__).parse_args()
for line in sys.stdin:
    words = line.split()
    if words:
        kind = "question" if words[-1] == "?" else SUBJECTS.get(words[0], "other")
        print(" ".join(words), kind, sep="\t")
