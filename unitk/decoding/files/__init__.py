"""The files that `unitk generate` reads and writes."""
