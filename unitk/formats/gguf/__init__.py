"""GGUF, the file that llama.cpp and what builds on it read: `model.py` the stacks it computes,
`vocabulary.py` the tokenizers."""
