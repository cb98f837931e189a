"""What a run reports: log, curves, tables, progress, profiles."""
