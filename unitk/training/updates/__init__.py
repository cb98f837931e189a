"""How an update of the optimizer is made on a GPU: without a wait for it."""
