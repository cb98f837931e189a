"""XLNet: relative positions and segments in every layer's scores, and a memory of states."""
