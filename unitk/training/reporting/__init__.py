"""Reports of a run: its log, loggers, progress, curves, README and model card."""
