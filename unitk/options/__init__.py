"""Text to options and back: fields and their help, values, parsing, help pages."""
