"""Forms of the aggregates that can take rows back.

Their merge is a commutative group: `inverted` gives the inverse of a state, and equal contents have equal bytes, however they
came about. So a state has no null, and counts its values; it may be negative until the rows arrive that it takes back.
"""
