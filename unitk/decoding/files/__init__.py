"""The files that `unitk generate` reads and writes: inputs, outputs, options of a checkpoint."""
