"""Parts of all tests that take about as long, for machines that run one part each: `make test-all PART=1/4`."""

from argparse import ArgumentTypeError
from collections.abc import Mapping


def part_of(text: str) -> tuple[int, int]:
    """Return the number of a part and how many there are; ArgumentTypeError for a text that names none."""
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise ArgumentTypeError(f"{text!r} is no part; write for example 1/4, the first one of four")
    return int(number), int(of)


def dealt(seconds: Mapping[str, float], of: int) -> dict[str, int]:
    """Return the part of each scope, from 1 on: those that take longest are dealt first, each to the part that has least."""
    held = [0.0] * of
    found = {}
    for scope in sorted(seconds, key=lambda scope: (-seconds[scope], scope)):
        least = held.index(min(held))
        found[scope] = least + 1
        held[least] += seconds[scope]
    return found
