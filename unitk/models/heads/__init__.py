"""Output layers, a file each: from the states at the asked slots to each row's loss."""
