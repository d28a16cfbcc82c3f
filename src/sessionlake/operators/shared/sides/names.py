"""The names of the two inputs."""

LEFT, RIGHT = SIDES = ("left", "right")
"""The inputs, as states, shuffles and stores call them. Their names in the config may differ."""


def other_of(side: str) -> str:
    """Return the other side."""
    return RIGHT if side == LEFT else LEFT
