"""THU-ERNIE: a stream of entities beside that of tokens, mixed in the last layers."""
