"""Reference implementations that share no code with sessionlake."""
