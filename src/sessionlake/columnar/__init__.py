"""Small vectorised tools between Arrow and numpy, for every layer above."""
