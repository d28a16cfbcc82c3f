"""Every operator, source, section and function of the registries has its class, also for type checkers; a new one needs only its entry."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessionlake
from sessionlake import StringAgg
from sessionlake.aggregates.functions import FUNCTIONS, Number
from sessionlake.aggregates.spec import AggregateSpec
from sessionlake.config.load import Config
from sessionlake.config.operator_sections import companions
from sessionlake.config.operators import OPERATORS
from sessionlake.config.sources import SOURCES
from sessionlake.define import classes
from sessionlake.define.sections import Aggregate, Operator, Source
from tests.define.stub import FILE, NAMES, names, stub

NO_CLASSES = {"pipeline", "source", "section", "directory", "project_warehouse", "looked_up", "upstream", "aggregates"}
"""Fields of a config that are arguments of `Pipeline` or no sections."""
SCRIPT = """\
from datetime import timedelta
from sessionlake import Count, Emit, Event, Files, Pipeline, Processors, Sessions, Sum, Windows

class Own: ...

pipeline = Pipeline(
    "sittings",
    warehouse="lake",
    shards=2,
    source=Files("events", format="json"),
    event=Event(key=["tenant", "author"], time="at"),
    operator=Sessions(gap=timedelta(hours=1), grace="1 day"),
    aggregates={"commits": Count(), "added": Sum("lines", where="lines > 0"), "text": "max(lines)", "own": Own},
    emit=Emit(early="1 minute"),
    serve={"port": 1},
)
reveal_type(pipeline.run(once=True).batches)
reveal_type(pipeline.test([{"author": "ann"}]).last.changes)
Processors(processor=Own, retention="1 day", output={"n": "long"})
Pipeline("a", operator=Sessions(gap=60), warehouse="lake")
Pipeline("a", operator=Sessions(gapp="1 hour"), warehouse="lake")
Pipeline("a", operator=Files("events"), warehouse="lake")
Pipeline("a", operator=Windows(kind="hoping", size="1 hour", retention="1 day"))
Pipeline("a", operator=Sessions(gap="1 hour"), warehouse="lake", shard=2, aggregates={"n": Count(where=1)})
"""
SEEN = """\
17: note: Revealed type is "int"
18: note: Revealed type is "list[dict[str, Any]]"
20: error: Argument "gap" to "Sessions" has incompatible type "int"; expected "str | timedelta"
21: error: Unexpected keyword argument "gapp" for "Sessions"; did you mean "gap"?
22: error: Argument "operator" to "Pipeline" has incompatible type "Files"; expected "Operator"
23: error: Missing named argument "warehouse" for "Pipeline"
23: error: Argument "kind" to "Windows" has incompatible type "Literal['hoping']"; expected "Literal['tumbling', 'hopping', 'sliding']"
24: error: Unexpected keyword argument "shard" for "Pipeline"; did you mean "shards"?
24: error: Argument "where" to "Count" has incompatible type "int"; expected "str | None"
"""


@pytest.fixture
def again() -> Iterator[None]:
    """Let the classes be made of the registries as they are now, and afterwards of those of before."""
    classes.classes.cache_clear()
    yield
    classes.classes.cache_clear()


def test_all_that_is_in_the_registries_has_a_class() -> None:
    found = classes.classes()
    of = {
        kind: [name for name, one in found.items() if issubclass(one, kind)] for kind in (Operator, Source, Aggregate)
    }
    assert len(of[Operator]) == len(OPERATORS)
    assert sorted(found[name].FIXED["kind"] for name in of[Source]) == sorted(SOURCES)
    assert [found[name].FUNCTION for name in of[Aggregate]] == list(FUNCTIONS)
    sections = {one.AT for one in found.values() if not issubclass(one, Aggregate)} | {"emit"}
    assert sections >= ({*Config.model_fields} - NO_CLASSES) | ({*companions()} - NO_CLASSES)
    assert all(getattr(sessionlake, name) is one for name, one in found.items())


def test_no_two_have_one_name() -> None:
    found = [shape.name for shape in classes.shapes()] + [classes.class_name(name) for name in FUNCTIONS]
    assert len(found) == len({*found}) == len(classes.classes())
    assert len(sessionlake.__all__) == len({*sessionlake.__all__})


@pytest.mark.usefixtures("again")
def test_a_new_entry_has_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "third_moment", FUNCTIONS["skewness"])  # type: ignore[arg-type]
    monkeypatch.setitem(SOURCES, "pulsar", SOURCES["kafka"])
    made = replace(OPERATORS["session"], kind="sessionlake.operators.visits.kind:Visits", section="visit")
    monkeypatch.setitem(OPERATORS, "visit", made)
    assert str(sessionlake.ThirdMoment("v")) == "third_moment(v)"  # type: ignore[attr-defined]
    assert sessionlake.Pulsar("t").values == {"kind": "pulsar", "topic": "t"}  # type: ignore[attr-defined]
    assert sessionlake.Visits(gap="1 hour").AT == "visit"  # type: ignore[attr-defined]
    assert "class Visits(Operator):" in stub()


def test_type_checkers_see_the_registries() -> None:
    assert FILE.read_text() == stub(), "run `python -m tests.define.stub`"


def test_the_names_are_those_of_the_registries() -> None:
    assert NAMES.read_text() == names(), "run `python -m tests.define.stub`"
    assert {*classes.classes()} < {*sessionlake.__all__}


def test_a_notebook_shows_every_name_and_imports_nothing_for_it() -> None:
    code = "import sys, sessionlake; print(*dir(sessionlake)); print(*sys.modules)"
    shown, loaded = _printed(code)
    assert shown == sorted(sessionlake.__all__)
    assert {"Files", "Sum", "Processor", "read_sessions", "spark"} < {*shown}
    assert not {"pyarrow", "pydantic", "numpy", "sessionlake.config.load"} & {*loaded}


def test_all_names_come_with_a_star_and_without_spark_or_pandas() -> None:
    code = "import sys\nfrom sessionlake import *\nprint(*globals()); print(*sys.modules)"
    found, loaded = _printed(code)
    assert {*sessionlake.__all__} < {*found}
    assert not {"pyspark", "pandas", "deltalake", "duckdb", "rocksdict"} & {*loaded}


def _printed(code: str) -> list[list[str]]:
    """Return the words of each line that a program prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_script_is_checked_by_mypy(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}", "--config-file=", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *words, "--hide-error-codes", "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    seen = [line.removeprefix("script.py:") for line in done.stdout.splitlines() if "defined in" not in line]
    assert seen == SEEN.splitlines(), done.stdout + done.stderr


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_is_the_text_of_a_config(name: str) -> None:
    function = FUNCTIONS[name]
    columns = ["price", "quantity"][: function.columns]
    literals: list[Any] = [
        float(literal.example) if isinstance(literal, Number) else "' > '"[1:-1] for literal in function.literals
    ]
    call = getattr(sessionlake, classes.class_name(name))(
        *columns, *literals, where="buys" if function.filtered else None
    )
    text = function.example(name).replace("column", "price").replace("other", "quantity")
    if function.filtered:
        text += " filter (where buys)"
    known = ["price", "quantity", "buys"]
    assert AggregateSpec.parse("a", str(call), known) == AggregateSpec.parse("a", text, known)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=9))
def test_a_text_in_a_call_stays_that_text(text: str) -> None:
    assert AggregateSpec.parse("a", str(StringAgg("url", text, 3)), ["url"]).literals == (text, 3)


def test_they_say_themselves() -> None:
    assert repr(sessionlake.Files("e", format="json")) == "Files(path='e', format='json')"
    assert repr(sessionlake.Sum("v", where="v > 1")) == "Sum('v', where='v > 1')"
    assert "grace, gap" in (sessionlake.Sessions.__doc__ or "")
    with pytest.raises(AttributeError, match="module 'sessionlake' has no attribute 'Sesions'"):
        _ = sessionlake.Sesions  # type: ignore[attr-defined]
