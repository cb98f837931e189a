"""The command line: one short file per verb, parse -> build -> call."""
