"""The rules of [source], one function for each kind of source. They are loaded with a config, so without Spark."""

import re

from sessionlake.config.layouts import OF_CSV, OF_JSON, OF_TEXT, Layout
from sessionlake.config.secrets import has_reference
from sessionlake.config.source import SourceSection, check_options, check_topic_name, require_path
from sessionlake.errors import ConfigError
from sessionlake.sources.partitions import slot_of


def check_delta(source: SourceSection) -> None:
    """Raise a ConfigError for missing keys, or keys that exclude each other."""
    require_path(source)
    if source.format is not None:
        raise ConfigError(f"{source.AT}.format: {source.format!r} goes with kind 'files' only; remove it")


def check_files(source: SourceSection) -> None:
    """Raise a ConfigError for missing keys, or keys that exclude each other."""
    if source.max_files_per_batch and source.max_bytes_per_batch:
        raise ConfigError(
            f"{source.AT}.max_bytes_per_batch: goes without max_files_per_batch, since Spark bounds a batch of files by one of them; "
            "remove one"
        )
    require_path(source)
    if source.layout is None:
        what = "is missing" if source.format is None else f"{source.format!r} goes with kind 'kafka' only"
        raise ConfigError(f"{source.AT}.format: {what}; write 'json', 'csv' or 'parquet', or 'text' for logs")
    _check_layout(source, source.layout)


_KEYS = {"csv": OF_CSV, "text": OF_TEXT, "json": OF_JSON}


def _check_layout(source: SourceSection, layout: Layout) -> None:
    """Raise a ConfigError for keys that the format has not, or that are no layout."""
    for key in dict.fromkeys((*OF_CSV, *OF_TEXT, *OF_JSON)):
        formats = [format_ for format_, keys in _KEYS.items() if key in keys]
        if getattr(source, key) is not None and source.format not in formats:
            raise ConfigError(f"{source.AT}.{key}: goes with format {' or '.join(map(repr, formats))} only; remove it")
    if layout.format == "csv":
        _check_csv(source, layout)
    elif layout.format == "text":
        _check_text(source, layout)
    elif source.records is not None:
        _check_records(source.AT, source.records)


def _check_records(at: str, records: str) -> None:
    # It needs Arrow, which only this key needs at this point.
    from sessionlake.sources.decoding.documents import parts_of_path  # noqa: PLC0415

    try:
        parts_of_path(records)
    except ValueError as error:
        raise ConfigError(f"{at}.records: {error}") from error


def _check_text(source: SourceSection, layout: Layout) -> None:
    # It needs Arrow, which only this format needs at this point.
    from sessionlake.sources.decoding.text_rows import columns_of  # noqa: PLC0415

    at = f"{source.AT}.pattern"
    if source.pattern is not None and source.preset is not None:
        raise ConfigError(f"{at}: goes without preset, which is a pattern, too; remove one")
    if not layout.pattern:
        raise ConfigError(
            f"{at}: is missing; write a regular expression with a group (?P<name>..) for each column, or a preset"
        )
    try:
        columns_of(layout.pattern)
    except ValueError as error:
        raise ConfigError(f"{at}: {error}") from error


def _check_csv(source: SourceSection, layout: Layout) -> None:
    """Raise a ConfigError for characters of which two are one, or that can't be in a file."""
    at = source.AT
    taken: dict[str, str] = {}
    for key in ("delimiter", "quote", "escape"):
        character = getattr(layout, key)
        if not character and key != "delimiter":
            continue
        if len(character) != 1 or not "\0" < character <= "\x7f" or character in "\r\n":
            raise ConfigError(
                f"{at}.{key}: {character!r} is not one ASCII character; write for example {_EXAMPLES[key]!r}"
            )
        if character in taken:
            raise ConfigError(f"{at}.{key}: {character!r} is the {taken[character]}, too; write another character")
        taken[character] = key
    if layout.comment and (layout.comment[0] in taken or set(layout.comment) & set("\r\n")):
        raise ConfigError(f"{at}.comment: {layout.comment!r} can begin a row, too; write a text such as '#'")
    _check_names(source, layout)


_EXAMPLES = {"delimiter": ";", "quote": '"', "escape": "\\"}


def _check_names(source: SourceSection, layout: Layout) -> None:
    at = f"{source.AT}.names"
    if layout.names and layout.header:
        raise ConfigError(f"{at}: goes with header = false; add that, or remove this key")
    if "" in layout.names:
        raise ConfigError(f"{at}: the name {layout.names.index('') + 1} is empty; write a name for each column")
    twice = next((name for name in layout.names if layout.names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{at}: {twice!r} is there twice; name each column once")


def check_kafka(source: SourceSection) -> None:
    """Raise a ConfigError for missing keys, or keys that exclude each other."""
    if source.max_bytes_per_batch is not None:
        raise ConfigError(
            f"{source.AT}.max_bytes_per_batch: Spark bounds a batch of a topic by its records; write max_offsets_per_batch, "
            "the bytes divided by those of your largest usual record"
        )
    if source.path:
        raise ConfigError(
            f"{source.AT}.path: {source.path!r} goes with kind 'files' or 'delta'; write {source.AT}.topic"
        )
    if not source.bootstrap_servers:
        raise ConfigError(f"{source.AT}.bootstrap_servers: is missing; write for example 'localhost:9092'")
    _check_topics(source)
    if source.format not in ("json", "avro", "protobuf"):
        what = "is missing" if source.format is None else f"{source.format!r} is no format of records"
        raise ConfigError(f"{source.AT}.format: {what}; write 'json', 'avro' or 'protobuf'")
    _check_schemas(source)
    if source.envelope is not None and source.tombstones:
        raise ConfigError(
            f"{source.AT}.tombstones: a record without a value says nothing more than the delete before it; remove it"
        )
    check_options(f"{source.AT}.options", source.options)


def _check_formats(source: SourceSection) -> None:
    """Raise a ConfigError for keys that go with other formats, or without a schema registry."""
    at, keyed = source.AT, source.key_format in ("avro", "protobuf")
    fits = {
        "avro_schema": ("'avro'", source.format == "avro"),
        "schema_subject": ("'avro' or 'protobuf'", source.is_binary),
        "schema_registry": ("'avro' or 'protobuf'", source.is_binary or keyed),
    }
    for key, (formats, fit) in fits.items():
        if getattr(source, key) and not fit:
            raise ConfigError(f"{at}.{key}: goes with format {formats} only; remove it")
    if source.schema_registry is None and (keyed or source.format == "protobuf"):
        what = "keys" if keyed else "values"
        raise ConfigError(f"{at}.schema_registry: is missing, which has the {what}' schemas; write its URL")
    if source.format == "protobuf" and source.envelope is not None:
        raise ConfigError(f"{at}.envelope: goes with format 'json' or 'avro' only; remove it")


def _check_schemas(source: SourceSection) -> None:
    """Raise a ConfigError for keys of Avro and of a registry that are missing or that don't go together."""
    at, avro, registry = source.AT, source.format == "avro", source.schema_registry
    _check_formats(source)
    if registry is None:
        if avro and source.avro_schema is None:
            raise ConfigError(
                f"{at}.avro_schema: is missing; name the file of the schema that the values are written with, or write {at}.schema_registry"
            )
        if source.schema_subject is not None:
            raise ConfigError(f"{at}.schema_subject: goes with schema_registry only; remove it")
        if avro and source.envelope is not None:
            raise ConfigError(f"{at}.envelope: needs {at}.schema_registry if the format is 'avro'; write its URL")
        return
    if not has_reference(registry) and not registry.startswith(("http://", "https://")):
        raise ConfigError(
            f"{at}.schema_registry: must begin with http:// or https://; write for example 'https://registry.internal:8081'"
        )
    if source.is_binary and source.confluent_header:
        raise ConfigError(
            f"{at}.confluent_header: values of a registry always begin with the id of a schema; remove it"
        )
    if source.envelope is not None and source.avro_schema is not None:
        raise ConfigError(f"{at}.avro_schema: does not go with an envelope, whose schemas the registry has; remove it")


def _check_topics(source: SourceSection) -> None:
    """Raise a ConfigError for topics that can't be, or can't be read together."""
    if source.topic_pattern is not None:
        _check_topic_pattern(source, source.topic_pattern)
        return
    if source.topics is None:
        check_topic_name(f"{source.AT}.topic", source.topic or "")
        return
    at = f"{source.AT}.topics"
    if source.topic is not None:
        raise ConfigError(f"{source.AT}.topic: is one of topics; write all names in topics, and remove this key")
    if source.tombstones:
        raise ConfigError(f"{source.AT}.tombstones: go with one topic; read the topics in pipelines of their own")
    slots: dict[int, str] = {}
    for name in source.topics:
        check_topic_name(at, name)
        other = slots.setdefault(slot_of(name), name)
        if other == name and source.topics.count(name) > 1:
            raise ConfigError(f"{at}: {name!r} is there twice; name it once")
        if other != name:
            raise ConfigError(
                f"{at}: the partitions of {other!r} and {name!r} get the same numbers; read one of them in another pipeline"
            )


def _check_topic_pattern(source: SourceSection, pattern: str) -> None:
    at = f"{source.AT}.topic_pattern"
    other = next((key for key in ("topic", "topics", "tombstones") if getattr(source, key)), None)
    if other is not None:
        raise ConfigError(f"{at}: goes without {other}; remove one of them")
    odd = _ONLY_PYTHONS.search(pattern)
    if odd is not None:
        raise ConfigError(
            f"{at}: {pattern!r} has {odd[0]!r}, which Python and Java read differently; write it in another way"
        )
    try:
        re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ConfigError(
            f"{at}: {pattern!r} is no regular expression ({error}); write for example 'orders-.*'"
        ) from error


_ONLY_PYTHONS = re.compile(r"\(\?(?:P|\(|[a-zA-Z]*[aLu])|&&|(?<!\\)\[(?:[^\]\\]|\\.)*?\[")
"""Groups, flags and classes that Java does not have, or has with another meaning."""


def check_results(source: SourceSection) -> None:
    """Raise a ConfigError for keys that are missing."""
    if not source.of:
        raise ConfigError(f"{source.AT}.of: is missing; write the name of a pipeline, or the path of its config")
    if source.rows is None:
        raise ConfigError(
            f"{source.AT}.rows: is missing; write 'final', for rows that events can't change any more, or 'changes', for all of them"
        )
