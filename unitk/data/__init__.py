"""From files to micro-batches: readers, the binary corpus, cuts, the plan, batching."""
