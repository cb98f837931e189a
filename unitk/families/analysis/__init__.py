"""What a trained model does inside: how contextual its states are, and which heads matter."""
