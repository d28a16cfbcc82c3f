"""A pipeline's TOML config, validated once, and the texts in it: durations, points in time, paths, secrets."""
