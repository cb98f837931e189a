"""What a run tells: log, curves, tables, progress, profiles."""
