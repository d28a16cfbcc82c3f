"""Windows on any axis: slices, when windows are sent, retention by number, and the tables of windows."""
