"""What is of Chinese alone: the annotator of its words."""
