"""ERNIE 2.0: one task of several objectives, which texts are shared out among.

task.py       options, which objective a text has at an update
words.py      capitalisation, and words that the document has elsewhere
sentences.py  order, distance, discourse relation, relevance
"""
