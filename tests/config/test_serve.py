import tomllib
from typing import Any

import pytest

from sessionlake.config.serve import ServeSection, Tokens, parted
from sessionlake.errors import ConfigError
from tests.infra.infra_files import ROOT
from tests.support import make_config

OUTSIDE = "serve.host: '0.0.0.0' is reached from outside"


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"host": "0.0.0.0"}, f"{OUTSIDE} and needs TLS"),  # noqa: S104 (is refused)
        ({"host": "127.0.0.1:80"}, "serve.host: '127.0.0.1:80' is no host"),
        ({"host": ""}, "serve.host: '' is no host"),
        ({"port": 65_536}, "serve.port: 65536 is too large; write 65535 or less"),
        ({"tls_key": "k"}, "serve.tls_certificate: is missing; serve.tls_key needs it"),
        ({"tls_certificate": "c"}, "serve.tls_key: is missing; serve.tls_certificate needs it"),
        ({"tls_key": "k", "tls_certificate": "c", "insecure_http": True}, "serve.insecure_http: can't be used with serve.tls_key"),
        ({"token_variable": "s3cr3t-token"}, "serve.token_variable: is no name of a variable"),
        ({"tables_timeout": "0 s"}, "serve.tables_timeout: '0 s' must be longer than zero"),
        ({"tables_timeout": "soon"}, "serve.tables_timeout: 'soon' is not a duration"),
        ({"max_rows": 0}, "serve.max_rows: 0 is too small; write 1 or more"),
        ({"tokens": ["s3cr3t-token"]}, "serve.tokens: is true or false; tokens stand in the environment variable that "),
        ({"tokens": "s3cr3t-token"}, "serve.tokens: is true or false; tokens stand in the environment variable that "),
        ({"tokens": False, "host": "::", "insecure_http": True}, "serve.tokens: false lets everybody read who reaches '::'; "),
        ({"metrics_token_variable": "a-b"}, "serve.metrics_token_variable: is no name of a variable"),
        ({"metrics_token_variable": "SESSIONLAKE_SERVE_TOKENS"}, "serve.metrics_token_variable: 'SESSIONLAKE_SERVE_TOKENS' is serve.token_variable, too"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_one_line(tmp_path: Any, section: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_config(tmp_path, serve=section)
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_files_are_absolute(tmp_path: Any) -> None:
    section = make_config(tmp_path, serve={"host": "::", "tls_key": "k.pem", "tls_certificate": "c.pem"}).serve
    assert (section.tls_key, section.tls_certificate) == (f"{tmp_path}/k.pem", f"{tmp_path}/c.pem")


def test_tokens_are_taken_from_the_environment_and_not_told() -> None:
    outside = ServeSection(host="192.0.2.1", insecure_http=True)
    name = outside.token_variable
    assert outside.tokens_in({name: " a-token-of-16-ch ,b-token-of-16-ch,,a-token-of-16-ch"}).full == (
        "a-token-of-16-ch",
        "b-token-of-16-ch",
    )
    assert ServeSection(host="localhost").tokens_in({}) == Tokens()
    with pytest.raises(
        ConfigError,
        match=r"^serve\.host: '192\.0\.2\.1' is reached from outside, and SESSIONLAKE_SERVE_TOKENS holds no token",
    ):
        outside.tokens_in({name: ","})
    for short in ("a-token-of-15-c", "a token of 16 ch", "a-token-of-16-é-"):
        with pytest.raises(ConfigError) as refused:
            outside.tokens_in({name: short})
        assert short not in str(refused.value)


@pytest.mark.parametrize(
    ("section", "environment", "line"),
    [
        ({"tokens": False}, {"SESSIONLAKE_SERVE_TOKENS": "a-token-of-16-ch"}, "serve.tokens: is false, and SESSIONLAKE_SERVE_TOKENS holds tokens"),
        ({"tokens": False}, {"SESSIONLAKE_SERVE_METRICS_TOKENS": "a-token-of-16-ch"}, "serve.tokens: is false, and SESSIONLAKE_SERVE_METRICS_TOKENS holds tokens"),
        ({}, {"SESSIONLAKE_SERVE_METRICS_TOKENS": "short"}, "serve.token_variable: SESSIONLAKE_SERVE_METRICS_TOKENS holds a token that is shorter"),
        ({}, dict.fromkeys(("SESSIONLAKE_SERVE_TOKENS", "SESSIONLAKE_SERVE_METRICS_TOKENS"), "a-token-of-16-ch"), "serve.metrics_token_variable: SESSIONLAKE_SERVE_METRICS_TOKENS holds a token that SESSIONLAKE_SERVE_TOKENS holds, too"),
        ({"peers": "http://{host}:1"}, {}, "serve.peers: servers that ask each other need the same token, and SESSIONLAKE_SERVE_TOKENS holds none"),
    ],
)  # fmt: skip
def test_tokens_that_do_not_go_with_the_rest(section: dict[str, Any], environment: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ServeSection(**section).tokens_in(environment)
    assert str(refused.value).startswith(line)
    assert "a-token" not in str(refused.value)


def test_a_token_of_a_pipeline_is_of_one_that_is_there() -> None:
    tokens = Tokens(full=("a-token-of-16-ch", "hours:b-token-of-16-ch", "hours:c:token-of-16-ch"))
    assert parted(tokens, ["hours"], "TOKENS") == (
        Tokens(full=("a-token-of-16-ch",)),
        {"hours": ("b-token-of-16-ch", "c:token-of-16-ch")},
    )
    for name in ("weakz", "Hours", "", "hours "):
        told = (
            r"^serve\.token_variable: TOKENS holds NAME:TOKEN with a NAME that is no pipeline; the pipelines are hours;"
        )
        with pytest.raises(ConfigError, match=told) as refused:
            parted(Tokens(full=(f"{name}:b-token-of-16-ch",)), ["hours"], "TOKENS")
        assert "b-token" not in str(refused.value)


@pytest.mark.parametrize(
    "given", ["customer_orders:", "customer_orders:ab", "customer_orders:a-token-of-15-c", ":a-token-of-15-c"]
)
def test_the_length_of_a_pipelines_token_is_that_of_what_is_sent(given: str) -> None:
    with pytest.raises(ConfigError, match="holds a token that is shorter than 16 characters"):
        ServeSection().tokens_in({"SESSIONLAKE_SERVE_TOKENS": f"a-token-of-16-ch,{given}"})


def test_a_pipelines_token_is_none_of_metrics() -> None:
    environment = {
        "SESSIONLAKE_SERVE_TOKENS": "hours:a-token-of-16-ch",
        "SESSIONLAKE_SERVE_METRICS_TOKENS": "a-token-of-16-ch",
    }
    with pytest.raises(ConfigError, match="holds a token that SESSIONLAKE_SERVE_TOKENS holds, too"):
        ServeSection().tokens_in(environment)


def test_tokens_are_not_shown() -> None:
    assert repr(Tokens(("a-token-of-16-ch",), ("b-token-of-16-ch",))) == "Tokens()"


def test_options_are_checked_as_the_file_is() -> None:
    assert ServeSection().on("::1", 0).port == 0
    with pytest.raises(ConfigError, match=f"^{OUTSIDE} and needs TLS"):
        ServeSection().on("0.0.0.0", None)  # noqa: S104 (is refused)


def test_the_page_shows_the_defaults() -> None:
    page = (ROOT / "docs" / "serve.md").read_text()
    shown = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])["serve"]
    missing = {"tls_certificate", "tls_key", "peers", "peers_authority"}
    assert {**shown, **dict.fromkeys(missing)} == ServeSection().model_dump()
