"""How rows of a keyed table are found whose time to live is over: one module a pattern."""
