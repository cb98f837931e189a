"""Steps of a search: what reads the words that were chosen, and what records a step."""
