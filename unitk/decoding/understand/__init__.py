"""Reading without writing: states and vectors of texts, and predicted labels and answers."""
