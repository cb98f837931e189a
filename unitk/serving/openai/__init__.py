"""Addresses that clients of OpenAI's API speak, below `/v1`; only the registry knows them.

fields.py       what their fields mean here, which ones have no meaning, and errors in their shape
spelling.py     outputs as strings: tokens, stop strings, a text that grows
writing.py      what all that write have in common: draws and beams, logprobs, streams of events
completions.py  /v1/completions: texts are continued, or written from sources
chat.py         /v1/chat/completions: a message is the source of a model of pairs
embeddings.py   /v1/embeddings
models.py       /v1/models
"""
