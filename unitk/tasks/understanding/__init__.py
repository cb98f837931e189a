"""Fine-tuning for understanding: labels of texts and words, places in texts, choices."""
