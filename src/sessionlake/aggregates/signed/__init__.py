"""Forms of the aggregates that can take rows back (docs/rules.md, rules 305 and 306).

Their states are a commutative group: `inverted` gives the inverse of a state, and equal contents have equal bytes, however they
came about. So no state is null, each counts its values, and it may be negative until the rows come that it takes back.
"""
