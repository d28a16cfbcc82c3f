"""Spark's analyzed plan of a DataFrame, as a tree of Java objects to look through."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from sessionlake.warehouse import spark_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CATALYST = "org.apache.spark.sql.catalyst"


class PlanTree:
    """An analyzed plan's nodes, and their expressions with the plans of subqueries."""

    def __init__(self, frame: "DataFrame") -> None:
        self.root: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
        self._is_a = partial(spark_names.is_instance_of, frame.sparkSession.sparkContext._gateway)  # noqa: SLF001

    def expressions(self, plan: Any = None) -> Iterator[Any]:
        """Yield all expressions in a plan (by default the whole plan), its children, and their subqueries."""
        plan = self.root if plan is None else plan
        for expression in self.of_node(plan):
            yield expression
            if self.is_subquery(expression):
                yield from self.expressions(expression.plan())
        for child in scala_items(plan.children()):
            yield from self.expressions(child)

    def of_node(self, plan: Any) -> Iterator[Any]:
        """Yield the expressions of one node, whole and in parts; a subquery's plan is not entered."""
        for expression in scala_items(plan.expressions()):
            yield from self._parts(expression)

    def is_subquery(self, expression: Any) -> bool:
        """Say whether an expression contains a plan."""
        return bool(self._is_a(expression, f"{CATALYST}.expressions.PlanExpression"))

    def _parts(self, expression: Any) -> Iterator[Any]:
        yield expression
        for child in scala_items(expression.children()):
            yield from self._parts(child)


def scala_items(sequence: Any) -> list[Any]:
    """Return a Scala sequence's items."""
    return [sequence.apply(i) for i in range(sequence.size())]
