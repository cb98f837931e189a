"""MASS for translation: languages, and back-translation while a model trains."""
