"""The likely fault of a line that is no TOML, with the way to write it: the parser's own words name neither key nor value."""

import re

_PAIR = re.compile(r"\s*([\w.-]+)\s*=\s*(.*?)\s*(?:\s#.*)?$")
_TWICE = re.compile(r"Cannot declare \((.*?),?\) twice")
_UNQUOTED = ("Invalid value", "Expected newline or end of document after a statement")
_ESCAPED = ("Invalid hex value", "Unescaped '\\' in a string")


def likely_cause(said: str, line: str) -> str | None:
    r"""Return the likely fault of a line at which the parser `said` something, with a remedy; None if there is no likely one.

    The message leaves out the value, which may be a secret.

    >>> likely_cause("Invalid value", "kind = files")
    'kind: the text has no quotes; write kind = "..."'
    """
    if declared := _TWICE.match(said):
        name = ".".join(part.strip(" '\"") for part in declared[1].split(","))
        return f"{name}: the section [{name}] is written twice; put all its keys below one of them"
    pair = _PAIR.match(line)
    return None if pair is None else _of_pair(said, *pair.groups())


def _of_pair(said: str, key: str, value: str) -> str | None:
    if said.startswith("Cannot overwrite"):
        return f"{key}: is written twice in its section; keep one of the two"
    if said.startswith(_ESCAPED):
        return f"{key}: a backslash begins an escape in double quotes; write the text in single quotes"
    if not said.startswith(_UNQUOTED) or not value or value[0] in "\"'[{":
        return None
    if value.lower() in ("true", "false"):
        return f"{key}: {value!r} is written in small letters; write {key} = {value.lower()}"
    return f'{key}: the text has no quotes; write {key} = "..."'
