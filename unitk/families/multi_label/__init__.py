"""Several classes a text, such as the types of a mention: each has a probability of its own."""
