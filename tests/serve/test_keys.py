"""Keys of several columns at the query server: named by columns, by their text, and by leading columns."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.client import QueryClient, QueryError
from sessionlake.config.joint_keys import joint_text
from sessionlake.serve.keys import with_named_key
from sessionlake.serve.refusals import RefusedError
from tests.columnar.awkward_texts import AWKWARD
from tests.serve.replica_support import MINUTE, Stream
from tests.serve.server_support import ask, serving
from tests.support import examples

TENANTS = ["acme", "", 'a"c', "back\\slash", "日本\U0001f600"]
USERS = ["u7", "", "&user_id=x", "x" * 3000]
EVENT = {"key": ["tenant", "user_id"], "time": "time_us", "time_unit": "us"}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    made = Stream(tmp_path_factory.mktemp("keys"), event=EVENT)
    made.run([(joint_text([tenant, user]), n * 6 * MINUTE) for tenant in TENANTS for user in USERS for n in range(2)])
    return made


@pytest.fixture(scope="module")
def url(stream: Stream) -> Iterator[str]:
    with serving(stream.config, requests_per_second=100_000) as found:
        yield found


def starts(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(row["tenant"], row["user_id"], row["session_start"]) for row in rows]


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("user", USERS)
def test_a_key_by_its_columns_and_by_its_text(url: str, tenant: str, user: str) -> None:
    status, named, _ = ask(url, "/v1/sessions", **{"key.tenant": tenant, "key.user_id": user})
    assert (status, named["served_by"], len(named["sessions"])) == (200, "store", 2)
    assert {(row["session_key"], row["tenant"], row["user_id"]) for row in named["sessions"]} == {
        (json.dumps([tenant, user], separators=(",", ":"), ensure_ascii=False), tenant, user)
    }
    assert list(named["sessions"][0])[:3] == ["session_key", "tenant", "user_id"]
    assert ask(url, "/v1/sessions", key=joint_text([tenant, user]))[1] == named
    with QueryClient(url) as client:
        key = {"user_id": user, "tenant": tenant}
        assert list(client.fetch(key)) == named["sessions"]
        assert [row["session_start"] for row in client.backward_fetch(key)] == [
            row["session_start"] for row in named["sessions"][::-1]
        ]
        assert client.fetch_session(key, 0) == named["sessions"][0]
        assert client.metadata(key)["key"] == joint_text([tenant, user])


@pytest.mark.parametrize("tenant", [*TENANTS, "nobody"])
def test_leading_columns_are_a_range(url: str, tenant: str) -> None:
    with QueryClient(url) as client:
        found = list(client.pages("sessions", **{"key.tenant": tenant}, limit=3))
    keys = sorted((joint_text([tenant, user]) for user in USERS), key=str.encode) if tenant in TENANTS else []
    assert [row["session_key"] for row in found] == [key for key in keys for _ in range(2)]


def test_many_keys_by_their_columns(url: str) -> None:
    named = [{"tenant": "acme", "user_id": user} for user in USERS]
    with QueryClient(url) as client:
        found = list(client.fetch_all([*named, joint_text(["", "u7"]), named[0]]))
    assert sorted({row["session_key"] for row in found}) == sorted(
        {joint_text(["", "u7"]), *(joint_text(["acme", user]) for user in USERS)}
    )


@pytest.mark.parametrize(
    ("path", "given", "line"),
    [
        ("/v1/sessions", {"key.tenat": "a"}, "key: 'tenat' is no column of the key; write tenant, user_id"),
        (
            "/v1/sessions",
            {"key.user_id": "a"},
            "key: 'tenant' is missing; name all columns of the key, or the first ones",
        ),
        ("/v1/sessions", {"key.tenant": "a", "key": "b"}, "key.tenant: can't be used with key; leave one of them out"),
        ("/v1/session", {"key.tenant": "a", "start": "0"}, "key.user_id: is missing; name all columns of the key here"),
        (
            "/v1/sessions",
            {"key.tenant": "a", "order": "desc"},
            "order: 'desc' is for one key; ask for a key, or leave it out",
        ),
        ("/v1/status", {"key.tenant": "a"}, "key.tenant: is no parameter here; remove it (/openapi.json has all)"),
    ],
)
def test_columns_that_name_no_key_are_refused_in_one_line(
    url: str, path: str, given: dict[str, str], line: str
) -> None:
    status, answer, _ = ask(url, path, **given)
    assert (status, answer) == (422, {"error": line})


def test_an_object_with_too_few_columns_is_refused(url: str) -> None:
    with QueryClient(url) as client, pytest.raises(QueryError) as raised:
        list(client.fetch_all([{"tenant": "acme"}]))
    assert str(raised.value) == "keys: {'tenant': 'acme'} names not all columns of the key; add the others"


def test_ranges_that_are_not_served_are_none_by_columns_either(stream: Stream) -> None:
    with serving(stream.config, ranges=False) as url:
        assert ask(url, "/v1/sessions", **{"key.tenant": "acme"})[0] == 403
        assert ask(url, "/v1/sessions", **{"key.tenant": "acme", "key.user_id": "u7"})[0] == 200


def test_the_parameters_are_described(url: str) -> None:
    paths = ask(url, "/openapi.json")[1]["paths"]
    for path in ("/v1/sessions", "/v1/session", "/v1/metadata"):
        parameters = {p["name"]: p["required"] for p in paths[path]["get"]["parameters"]}
        assert {"key": False, "key.tenant": False, "key.user_id": False}.items() <= parameters.items()


def test_a_key_of_one_column_has_no_such_parameters(tmp_path: Path) -> None:
    made = Stream(tmp_path)
    made.run([("a", 0)])
    with serving(made.config) as url:
        status, answer, _ = ask(url, "/v1/sessions", **{"key.key": "a"})
    assert (status, answer) == (
        422,
        {"error": "key: 'key' is no column of the key; the key is one column, write its text"},
    )


names = st.sampled_from(["key.tenant", "key.user_id", "key.", "key.x", "key", "prefix", "key_from", "limit", "cursor"])
values = st.one_of(st.sampled_from(AWKWARD), st.text(max_size=5))


@given(st.dictionaries(names, values), st.booleans())
@examples(300)
def test_any_parameters_become_a_key_or_a_line(given: dict[str, str], ranges: bool) -> None:  # noqa: FBT001
    try:
        found = with_named_key(given, ["tenant", "user_id"], ranges=ranges)
    except RefusedError:
        assert any(name.startswith("key.") for name in given)
        return
    assert {name: value for name, value in found.items() if name not in ("key", "prefix")} == {
        name: value for name, value in given.items() if not name.startswith("key.") and name not in ("key", "prefix")
    }
    if "key.user_id" in given:
        assert json.loads(found["key"]) == [given["key.tenant"], given["key.user_id"]]
    elif "key.tenant" in given:
        assert json.loads(f'{found["prefix"]}""]') == [given["key.tenant"], ""]
        assert ranges
