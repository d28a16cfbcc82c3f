"""Session windows: pure algebra (windows, partials, kernel, rules, corrections), and the operator on the engine."""
