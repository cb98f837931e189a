"""What models make of texts that they only read: states and vectors, labels and answers."""
