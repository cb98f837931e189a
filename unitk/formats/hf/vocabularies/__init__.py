"""What the vocabularies of a few families of released models need; the registry knows it."""
