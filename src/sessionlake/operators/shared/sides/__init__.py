"""Operators with two event inputs, a left and a right one: their sections of the config, their columns, and their rows before the shuffle."""
