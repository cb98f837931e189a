"""Translation: MASS and mBART with their languages, and back-translation while a model trains."""
