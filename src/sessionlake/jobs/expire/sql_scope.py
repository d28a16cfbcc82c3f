"""The tables that the SQL of a rule may read: the row, and tables named in the config. The job's user could read more."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sessionlake.errors import JobError
from sessionlake.jobs.expire.allowed import ALLOWED
from sessionlake.jobs.expire.plan_tree import CATALYST, PlanTree, scala_items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES = "spark.sql.runSQLOnFiles"
_OF_NO_SOURCE = ("OneRowRelation", "LocalRelation", "CTERelationRef")
"""Leaves that hold values written in the SQL itself."""
_CALLS = ("Invoke", "StaticInvoke")
"""Calls of Java methods, as which Spark implements some functions. They can't be written in SQL."""
_OWN = (f"{CATALYST}.", "org.apache.spark.unsafe.", "java.lang.Math")


@contextmanager
def without_files(spark: "SparkSession") -> Iterator[None]:
    """Let SQL name no files, as in text.`/path`: Spark would open them as soon as it analyzes the SQL, and quote them in errors."""
    before = spark.conf.get(_FILES)
    spark.conf.set(_FILES, "false")
    try:
        yield
    finally:
        spark.conf.set(_FILES, before or "true")


def check_scope(chosen: PlanTree, sessions: PlanTree, tables: Collection[str]) -> None:
    """Raise a JobError unless all that `chosen` reads is the plan of `sessions` and temporary views named in `tables`."""
    _check_plan(chosen, chosen.root, sessions.root, {name.lower() for name in tables})


def _check_plan(tree: PlanTree, plan: Any, sessions: Any, tables: Collection[str]) -> None:
    if plan.fastEquals(sessions) or _is_named_view(plan, tables):
        return
    for expression in tree.of_node(plan):
        _check_function(expression)
        if tree.is_subquery(expression):
            _check_plan(tree, expression.plan(), sessions, tables)
    children = scala_items(plan.children())
    kind = plan.getClass().getSimpleName()
    if kind == "View" or (not children and kind not in _OF_NO_SOURCE):
        readable = ", ".join(sorted(tables)) or "none"
        raise JobError(
            f"where: it reads {_shown(plan, kind)}; it may read the session's row and the tables of [expire] only ({readable})"
        )
    for child in children:
        _check_plan(tree, child, sessions, tables)


def _is_named_view(plan: Any, tables: Collection[str]) -> bool:
    if plan.getClass().getSimpleName() != "View" or not plan.isTempView():
        return False
    name = plan.desc().identifier()
    return name.database().isEmpty() and name.table().lower() in tables


def _check_function(expression: Any) -> None:
    kind = expression.getClass()
    name = kind.getSimpleName().rstrip("$")
    own = kind.getName().startswith(f"{CATALYST}.expressions.")
    if not own or not (name in ALLOWED or (name in _CALLS and _target(expression, name).startswith(_OWN))):
        raise JobError(
            f"where: {expression.prettyName()} is not allowed: it may call other code, open files or addresses, or reveal the machine; "
            "use Spark's own functions of values (docs/jobs/expire.md)"
        )


def _target(call: Any, name: str) -> str:
    """Return the Java class whose method is called; nothing if it is that of a value."""
    if name == "StaticInvoke":
        return str(call.staticObject().getName())
    target = call.targetObject()
    return str(target.value().getClass().getName()) if target.getClass().getSimpleName() == "Literal" else ""


def _shown(plan: Any, kind: str) -> str:
    return str(plan.desc().identifier().unquotedString()) if kind == "View" else str(plan.simpleString(3))
