"""One objective per file: config, layouts, decoding protocol."""
