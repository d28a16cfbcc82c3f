"""Texts whose hash by XXH64 is equal under every seed."""

from itertools import product
from random import Random

_MASK = (1 << 64) - 1
_P1, _P2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
"""Multipliers of XXH64."""


def twins() -> tuple[str, str]:
    """Return two texts of 16 ASCII characters: they differ in one bit of the state, which their second words take back."""
    first, second = _pair(36), _pair(63)
    return (first[0] + second[0]).decode(), (first[1] + second[1]).decode()


def alike(parts: int) -> list[bytes]:
    """Return 3^parts keys of 64 bytes a part, ascending. Under each seed 2^parts of them have one hash."""
    return sorted(map(b"".join, product(map(_stripes, (-1, 0, 1)), repeat=parts)))


def _stripes(sign: int) -> bytes:
    """Return two stripes. Those of 0 and of either 1 or -1 change the state alike, the seed says of which."""
    by_p2 = pow(_P2, -1, 1 << 64)
    first, second = 7 + (1 << 63) * by_p2 * abs(sign), 9 + sign * (1 << 30) * _P1 * by_p2
    return b"".join((word & _MASK).to_bytes(8, "little") + bytes(24) for word in (first, second))


def _pair(bit: int) -> tuple[bytes, bytes]:
    """Return two words that differ in one bit after they were scrambled."""
    random = Random(bit)
    for _ in range(1 << 16):
        word = bytes(random.randrange(1, 128) for _ in range(8))
        other = _unscrambled(_scrambled(word) ^ 1 << bit)
        if other.isascii():
            return word, other
    raise AssertionError(bit)


def _scrambled(word: bytes) -> int:
    product = int.from_bytes(word, "little") * _P2 & _MASK
    return (product << 31 | product >> 33) * _P1 & _MASK


def _unscrambled(number: int) -> bytes:
    rotated = number * pow(_P1, -1, 1 << 64) & _MASK
    product = (rotated >> 31 | rotated << 33) & _MASK
    return (product * pow(_P2, -1, 1 << 64) & _MASK).to_bytes(8, "little")
