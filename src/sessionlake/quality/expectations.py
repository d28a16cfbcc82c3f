"""Expectations for sessionlake. Great Expectations computes their metrics together, in a query for each table.

It combines metrics of the kind AGGREGATE_FN on one table into one `agg`. Most of its own expectations cost a pass over
the table each, or a second one that fetches examples.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_partial, metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from pyspark.sql import Column
from pyspark.sql import functions as F

Values = dict[str, Any]


def _in_the_one_query(column_of: Callable[[Values], Column]) -> Any:
    """Return a metric's function that adds a column to the table's query."""

    @metric_partial(
        engine=SparkDFExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type=MetricDomainTypes.TABLE,
    )
    def _spark(
        cls: type,  # noqa: ARG001 (Great Expectations passes it and all below by name)
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: Values,
        metric_value_kwargs: Values,
        metrics: Values,  # noqa: ARG001
        runtime_configuration: Values,  # noqa: ARG001
    ) -> tuple[Column, Values, Values]:
        column = column_of(metric_value_kwargs)
        # Fails here, for this expectation alone, if it would take the whole query with it.
        execution_engine.get_domain_records(metric_domain_kwargs).agg(column)
        return column, metric_domain_kwargs, {}

    return _spark


class AggregateOfRows(TableMetricProvider):
    """The value of a SQL aggregate expression over the table's columns."""

    metric_name = "sessionlake.aggregate"
    value_keys = ("sql",)
    _spark = _in_the_one_query(lambda values: F.expr(values["sql"]))


class RowsBreaking(TableMetricProvider):
    """How many rows a SQL condition does not hold for; a condition that comes out null does not hold."""

    metric_name = "sessionlake.rows_breaking"
    value_keys = ("condition",)
    _spark = _in_the_one_query(
        lambda values: F.count_if(~F.coalesce(F.expr(values["condition"]).cast("boolean"), F.lit(False)))
    )


class Schema(TableMetricProvider):
    """Type of each column, as Spark names it."""

    metric_name = "sessionlake.schema"

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805 (Great Expectations calls it with the class)
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: Values,
        metric_value_kwargs: Values,  # noqa: ARG002
        metrics: Values,  # noqa: ARG002
        runtime_configuration: Values,  # noqa: ARG002
    ) -> dict[str, str]:
        schema = execution_engine.get_domain_records(metric_domain_kwargs).schema
        return {field.name: field.dataType.simpleString() for field in schema.fields}


class ExpectAggregateToBeBetween(BatchExpectation):
    """Expect the value of a SQL aggregate expression to lie between two bounds, inclusive; null lies nowhere."""

    name: str
    sql: str
    min_value: Any = None
    max_value: Any = None
    column: str | None = None
    """The column that the expression is about; only for reports."""

    metric_dependencies: ClassVar[tuple[str, ...]] = ("sessionlake.aggregate",)
    success_keys: ClassVar[tuple[str, ...]] = ("sql", "min_value", "max_value")
    args_keys: ClassVar[tuple[str, ...]] = ("name", "sql", "min_value", "max_value", "column")

    def _validate(
        self,
        metrics: Values,
        runtime_configuration: Values | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> Values:
        return self._validate_metric_value_between(
            "sessionlake.aggregate", metrics, runtime_configuration, execution_engine
        )


class ExpectRowsToSatisfy(BatchExpectation):
    """Expect a SQL condition to hold for each row; null does not count as holding."""

    name: str
    condition: str
    column: str | None = None

    metric_dependencies: ClassVar[tuple[str, ...]] = ("sessionlake.rows_breaking", "table.row_count")
    success_keys: ClassVar[tuple[str, ...]] = ("condition",)
    args_keys: ClassVar[tuple[str, ...]] = ("name", "condition", "column")

    def _validate(
        self,
        metrics: Values,
        runtime_configuration: Values | None = None,  # noqa: ARG002
        execution_engine: ExecutionEngine[Any] | None = None,  # noqa: ARG002
    ) -> Values:
        rows, breaking = metrics["table.row_count"], metrics["sessionlake.rows_breaking"]
        percent = 100 * breaking / rows if rows else 0.0
        result = {"element_count": rows, "unexpected_count": breaking, "unexpected_percent": percent}
        return {"success": breaking == 0, "result": {"observed_value": f"{breaking} of {rows} rows", **result}}


class ExpectSchemaToEqual(BatchExpectation):
    """Expect exactly these columns, with these types, in any order."""

    name: str
    columns: dict[str, Any]

    metric_dependencies: ClassVar[tuple[str, ...]] = ("sessionlake.schema",)
    success_keys: ClassVar[tuple[str, ...]] = ("columns",)
    args_keys: ClassVar[tuple[str, ...]] = ("name", "columns")

    def _validate(
        self,
        metrics: Values,
        runtime_configuration: Values | None = None,  # noqa: ARG002
        execution_engine: ExecutionEngine[Any] | None = None,  # noqa: ARG002
    ) -> Values:
        wanted, found = self._get_success_kwargs()["columns"], metrics["sessionlake.schema"]
        differences = {
            "missing": sorted(wanted.keys() - found.keys()),
            "unknown": sorted(found.keys() - wanted.keys()),
            "types": {n: f"{found[n]}, not {wanted[n]}" for n in wanted if n in found and found[n] != wanted[n]},
        }
        wrong = {kind: names for kind, names in differences.items() if names}
        return {"success": not wrong, "result": {"observed_value": wrong or "as expected"}}
