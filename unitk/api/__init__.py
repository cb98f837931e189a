"""Shared by all verbs, on the command line and in Python.

verb.py         what a verb is, and which there are
arguments.py    keyword arguments are options with the names of the command line
loading.py      `unitk.load`, `unitk.load_module`
answering.py    texts in, answers out
"""
