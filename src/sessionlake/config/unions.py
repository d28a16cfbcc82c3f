"""Unions of sections, each member for one value of a key such as `kind`: the member that a text chooses, and keys of other members."""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

Model = type[BaseModel]


def leaves(kind: Any) -> list[Model]:
    """Return the sections that a type has as members, those of unions within it, too; none if it is of no section."""
    origin = get_origin(kind)
    if origin is Annotated:
        return leaves(get_args(kind)[0])
    if origin in (Union, UnionType):
        return [leaf for member in get_args(kind) for leaf in leaves(member)]
    return [kind] if isinstance(kind, type) and issubclass(kind, BaseModel) else []


def chosen(members: Sequence[Model], raw: object) -> list[Model]:
    """Return the members that a text's values of the keys between them ask for; all if these values are of none."""
    for key in _keys(members):
        value = _value(members[0], key, raw)
        members = [member for member in members if value in _words(member, key)] or members
    return list(members)


def not_chosen(members: Sequence[Model], raw: object, path: Sequence[str]) -> str:
    """Return why a text can't have the key at a path of section names, if other members have it; the empty text if none has."""
    for key in _keys(members):
        value = _value(members[0], key, raw)
        having = [member for member in members if _has(member, path)]
        words = dict.fromkeys(word for member in having for word in _words(member, key))
        if words and value not in words:
            return f"is not used with {key} = {value!r}; remove it, or write one of {', '.join(map(repr, words))}"
        members = [member for member in members if value in _words(member, key)]
    return ""


def _keys(members: Sequence[Model]) -> list[str]:
    """Return the keys whose values distinguish members, those with the fewest distinct values first."""
    if len(members) < 2:
        return []
    common = [name for name in members[0].model_fields if all(_words(member, name) for member in members)]
    apart = {name: len({_words(member, name) for member in members}) for name in common}
    return sorted((name for name in common if apart[name] > 1), key=lambda name: apart[name])


def _words(member: Model, key: str) -> tuple[Any, ...]:
    field = member.model_fields.get(key)
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()


def _value(member: Model, key: str, raw: object) -> object:
    return raw.get(key, member.model_fields[key].default) if isinstance(raw, Mapping) else None


def _has(member: Model, path: Sequence[str]) -> bool:
    field = member.model_fields.get(path[0])
    if field is None or len(path) == 1:
        return field is not None
    return any(_has(inner, path[1:]) for inner in leaves(field.annotation))
