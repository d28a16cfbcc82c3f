"""Each command that `sessionlake plan` names is one that the config will be given to: the checks by which the commands refuse say yes. No JVM."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.jobs.rebuild.job import _check_origin
from sessionlake.jobs.run import require_known
from sessionlake.preflight.additions import archived_batches
from sessionlake.stream.accepted_commands import refuses_source
from sessionlake.stream.changes import check_changes, refusals
from sessionlake.stream.kinds import kind_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.lake import Lake
from tests.cli.plan_support import archive_on, changes_of, config_table, lake, plan, written
from tests.operator_forms import FORMS
from tests.operators_table import LAKES
from tests.stream.old_warehouses import FIXTURES, unpack

KAFKA = {"kind": "kafka", "topic": "clicks", "bootstrap_servers": "kafka:9092", "format": "json"}
TYPES = {"key": "string", "time": "long", "id": "string", "v": "long", "tag": "string"}


def unique_lake(root: Path) -> Config:
    """Return the config of a warehouse whose pipeline takes each event once, which it unpacks."""
    unpack(root, FIXTURES / "unique_session-0.2.tar.gz")
    config: Config = FORMS["unique session"](root, root / "events").config
    return config


def commands_in(text: str) -> list[list[str]]:
    """Return the words of the commands in a text: in backquotes, or up to the end of the line."""
    quoted = re.findall(r"`(sessionlake [^`]+)`", text)
    bare = re.findall(r"(?<!`)(sessionlake (?:backfill|rebuild) .*)$", re.sub(r"`[^`]*`", "", text), re.MULTILINE)
    return [shlex.split(command) for command in (*quoted, *bare)]


def require_taken(words: Sequence[str], file: Path) -> str:
    """Ask the checks of a command whether it is taken, and return its name."""
    _, name, *rest = [str(file) if word == "CONFIG" else word for word in words]
    if name == "backfill" and not rest:
        require_known(load_config(file), name)  # the name alone
        return name
    command = main.get_command(click.Context(main), name)
    assert command, words
    given = command.make_context(name, rest).params
    config = load_config(file)
    last, bound = last_batch(Lake.of(config)), kind_of(config).bound_settings()
    if name == "rebuild":
        _check_origin(
            config, **{option: given[option] for option in ("from_topic", "from_archive", "from_what_is_there")}
        )
    elif name == "backfill":
        require_known(config, name)
        whole = all(archived_batches(Lake.of(config)).values())
        assert whole or refuses_source(config, "") is None
    elif name == "run":
        check_changes(config, last, bound, runs=True, drops=given["drop_aggregates"])
    else:
        assert (name, given["write"]) == ("plan", True)
        result = CliRunner().invoke(main, ["plan", str(file), "--write"])
        assert ": wrote\n" in result.output
        assert not [told for told in refusals(load_config(file), last, bound) if ".gap" in told]
    return name


def named(file: Path) -> set[str]:
    """Return the commands that `plan` and the refusals of `run` name, once each is known to be taken."""
    text = plan(file).output
    text += "".join(f"{change['refused']}\n" for change in changes_of(file) if change["refused"])
    # `plan --write` writes into the config: the others first.
    words = sorted({tuple(command) for command in commands_in(text)}, key=lambda command: command[1] == "plan")
    return {require_taken(one, file) for one in words}


def with_topic(file: Path) -> None:
    """Let a config read a topic."""
    text = file.read_text()
    source = re.search(r"^\[source\]\n(?:.+\n)*", text, re.MULTILINE)
    assert source
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in KAFKA.items()]
    types = [f"{name} = {json.dumps(value)}\n" for name, value in TYPES.items()]
    file.write_text(text.replace(source[0], "".join(["[source]\n", *lines, "[source.types]\n", *types])))


def aggregate_of(config: Config) -> str:
    return next(iter(config.aggregates))


def of_operator(config: Config) -> dict[str, dict[str, Any]]:
    """Return changes of a config, by what they are."""
    found: dict[str, Any] = {"shards": {"pipeline": {"shards": 7}}}
    if config.operator not in ("join", "table_join"):
        found["key"] = {"event": {"key": "tag"}}
        found["type"] = {"source": {"types": {"v": "string"}}}
    if config.aggregates:
        name = aggregate_of(config)
        found["added"] = {"aggregates": {"more": "count(v)"}}
        found["dropped"] = {"aggregates": {name: None}}
        found["redefined"] = {"aggregates": {name: "max(v)"}}
    if config.operator == "session":
        found["gap"] = {"session": {"gap": "7 us"}}
    return found


@pytest.mark.parametrize("topic", [False, True])
@pytest.mark.parametrize("operator", LAKES)
def test_every_named_command_is_taken(tmp_path: Path, operator: str, *, topic: bool) -> None:
    config = lake(tmp_path, operator)
    if topic and config.operator in ("join", "table_join"):
        return
    for what, changed in of_operator(config).items():
        if topic and what == "type":
            continue
        file = written(config, tmp_path, **changed)
        if topic:
            with_topic(file)
        found = named(file)
        if what == "shards":
            assert found == set()
        if what in ("key", "type", "redefined", "gap"):
            assert "rebuild" in found
        if what == "dropped":
            assert found == {"run"}
        if what == "gap":
            assert "plan" in found
        if what == "added":
            fills = config.entry.recompute is not None and not topic and config.event.unique_us is None
            assert found == {"backfill" if fills else "rebuild"}, plan(file).output


def test_with_unique_for_and_without_an_archive_an_added_aggregate_is_filled_by_a_rebuild_alone(tmp_path: Path) -> None:
    file = written(unique_lake(tmp_path), tmp_path, aggregates={"more": "count(v)"})
    (change,) = changes_of(file)
    assert change["backfill"] is None
    output = plan(file).output
    assert "backfills" not in output
    assert "until `sessionlake backfill` fills them" not in output
    assert (
        "it stays null in them (backfill: event.unique_for: is set, and the source has duplicates, which only the archive lacks, "
        f"and there is no archive), unless all is computed again: sessionlake rebuild {file} --warehouse NEW\n"
    ) in output


@pytest.mark.parametrize("operator", ["unique_session", "session"])
def test_an_archive_that_lacks_a_batch_fills_nothing_that_the_source_can_t(tmp_path: Path, operator: str) -> None:
    config = unique_lake(tmp_path) if operator == "unique_session" else lake(tmp_path, operator)
    file = written(config, tmp_path, aggregates={"more": "count(v)"})
    if operator == "session":
        with_topic(file)
    write_deltalake(str(config_table(config, schemas.EVENTS)), pa.table({"batch_id": [0]}))
    assert re.search(r"and batch \d+ was not archived\), unless all is computed again: ", plan(file).output)
    archive_on(config, True)
    if not all(archived_batches(Lake.of(config)).values()):  # batches that the table of inputs has
        return
    (change,) = [one for one in changes_of(file) if one["setting"] == "aggregates.more"]
    assert change["backfill"].startswith(f"sessionlake backfill {file} --from ")
    assert named(file) == {"backfill"}


def test_the_other_name_for_a_redefined_aggregate_is_taken(tmp_path: Path) -> None:
    config = lake(tmp_path, "session")
    name = aggregate_of(config)
    assert (
        "or write 'max(v)' under another name\n" in plan(written(config, tmp_path, aggregates={name: "max(v)"})).output
    )
    assert plan(written(config, tmp_path, aggregates={"most": "max(v)"})).exit_code == 0


def test_an_aggregate_that_is_gone_has_the_option_in_its_line(tmp_path: Path) -> None:
    config = lake(tmp_path, "session")
    output = plan(written(config, tmp_path, aggregates={aggregate_of(config): None})).output
    assert "`sessionlake run CONFIG --drop-aggregates` takes it, once\n" in output


def test_a_gap_that_no_section_can_keep_is_told_without_one(tmp_path: Path) -> None:
    config = lake(tmp_path, "session")
    changed = {"gap": "7 us", "before": [{"until": "1970-01-02", "gap": "5 us"}]}
    assert "--write" not in plan(written(config, tmp_path, session=changed)).output
    assert "`sessionlake plan CONFIG --write`" in plan(written(config, tmp_path, session={"gap": "7 us"})).output
