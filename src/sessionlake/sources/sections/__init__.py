"""The rules of [source], one module for each kind of source. They are loaded with a config, so without Spark."""
