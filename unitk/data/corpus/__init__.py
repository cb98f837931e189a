"""From texts to a binary corpus on disk, and back."""
