"""A new warehouse from all events, after a change that old rows can't follow; then the switch to it."""

from sessionlake.jobs.rebuild.job import rebuild
from sessionlake.jobs.rebuild.readers import readers_need
from sessionlake.jobs.rebuild.switch import Switch, apply_switch, plan_switch, switched

__all__ = ["Switch", "apply_switch", "plan_switch", "readers_need", "rebuild", "switched"]
