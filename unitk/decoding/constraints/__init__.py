"""Constraints on outputs: words they must or must not contain, and diversity between them."""
