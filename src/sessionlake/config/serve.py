"""`[serve]`: the address of the query server, its callers, and the cost that one answer may have."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any, Self

from pydantic import Field, field_validator

from sessionlake.config.durations import parse_duration
from sessionlake.config.fields import Duration, Section
from sessionlake.errors import ConfigError

SHORTEST_TOKEN = 16
"""Characters."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_LONGEST_HOST = 253
_PEER = "{host}"
_PEERS = re.compile(r"https?://([A-Za-z0-9-]+\.)*\{host\}(\.[A-Za-z0-9-]+)*:[0-9]{1,5}")
_TOKEN = re.compile(r"[!-+\--~]+")


@dataclass(frozen=True)
class Tokens:
    """The tokens of a server; their texts are never printed."""

    full: tuple[str, ...] = field(default=(), repr=False)
    """Tokens that open all paths."""
    metrics: tuple[str, ...] = field(default=(), repr=False)
    """Tokens that open /metrics and the paths that need no token."""


def parted(tokens: Tokens, names: Collection[str], variable: str) -> tuple[Tokens, dict[str, tuple[str, ...]]]:
    """Return the tokens that open all, and by pipeline those that open it alone: written NAME:TOKEN, of which TOKEN is sent.

    ConfigError, which shows no token, if one is of a pipeline that is not there. `variable` is the environment's.

    >>> parted(Tokens(full=("secret", "clicks:another")), ["clicks"], "TOKENS")[1]
    {'clicks': ('another',)}
    """
    confined: dict[str, tuple[str, ...]] = {}
    whole = []
    for given in tokens.full:
        name, colon, token = given.partition(":")
        if not colon:
            whole.append(given)
        elif name in names:
            confined[name] = (*confined.get(name, ()), token)
        else:
            raise ConfigError(
                f"serve.token_variable: {variable} holds NAME:TOKEN with a NAME that is no pipeline; the pipelines are "
                f"{', '.join(names)}; a token that opens all has no colon"
            )
    return replace(tokens, full=tuple(whole)), confined


def _bare(given: str) -> str:
    """Return the part of a token that is sent: NAME:TOKEN is one of a pipeline."""
    return given.partition(":")[2] if ":" in given else given


class ServeSection(Section):
    """The query server of `sessionlake serve`."""

    host: str = "127.0.0.1"
    """Any but a loopback address needs a token, and TLS or insecure_http."""
    port: int = Field(default=8787, ge=0, le=65535)
    """0 takes a free one."""
    token_variable: str = "SESSIONLAKE_SERVE_TOKENS"  # noqa: S105 (the variable's name)
    """Name of the environment variable that holds the tokens, parted by commas: with two of them one can be replaced."""
    metrics_token_variable: str = "SESSIONLAKE_SERVE_METRICS_TOKENS"  # noqa: S105 (the variable's name)
    """Name of the one that holds tokens for /metrics alone."""
    tokens: bool = True
    """Whether a token is needed: if the variable holds none, one is made for the run. False only on a loopback address."""
    tls_certificate: str | None = None
    """A PEM file, and `tls_key` the one of its key."""
    tls_key: str | None = None
    insecure_http: bool = False
    """Whether a host that others reach may be served without TLS, as behind a proxy that has it."""
    peers: str | None = None
    """The address of the servers of other hosts, for example 'https://{host}:8787'. A key is asked of the host that has its shard."""
    peers_authority: str | None = None
    """A PEM file of the authority that signed their certificates; the machine's own ones if there is none."""
    ranges: bool = True
    """Whether ranges of keys may be asked for, and not only keys that are named."""
    requests_per_second: int = Field(default=200, ge=1)
    """Most requests of a token; without tokens, of a client's address."""
    max_rows: int = Field(default=1000, ge=1, le=100_000)
    """Most rows of an answer."""
    max_bytes: int = Field(default=4_000_000, ge=1000)
    """Most bytes of an answer's rows; one row is always sent."""
    max_scan: int = Field(default=200_000, ge=1)
    """Stored values that are looked at for an answer."""
    tables_timeout: Duration = "10 seconds"
    """How long an answer may be looked for in the tables, if the stores don't have it."""

    @field_validator("tokens", mode="before")
    @classmethod
    def _no_secret(cls, given: Any) -> Any:
        if not isinstance(given, bool):
            # It may be a token: it is not shown.
            raise ValueError(  # noqa: TRY004 (pydantic makes a problem of this one alone)
                "is true or false; tokens stand in the environment variable that serve.token_variable names"
            )
        return given

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the host."""
        return is_loopback(self.host)

    @property
    def tables_timeout_us(self) -> int:
        """How long an answer may be looked for in the tables, microseconds."""
        return parse_duration(self.tables_timeout, "serve.tables_timeout")

    def on(self, host: str | None, port: int | None) -> Self:
        """Return the section with another host or port; ConfigError if they don't go with the rest."""
        given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
        section = self.model_copy(update=given)
        section.check()
        return section

    def check(self) -> None:
        """Raise ConfigError for values that don't go together."""
        if not is_host(self.host):
            raise ConfigError(
                f"serve.host: {self.host!r} is no host; write a name or an address, and the port as serve.port"
            )
        self._check_variables()
        for given, missing in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
            if getattr(self, given) and not getattr(self, missing):
                raise ConfigError(f"serve.{missing}: is missing; serve.{given} needs it")
        if self.insecure_http and self.tls_key:
            raise ConfigError("serve.insecure_http: can't be used with serve.tls_key; remove one of them")
        if not self.is_loopback and not self.tls_key and not self.insecure_http:
            raise ConfigError(
                f"serve.host: {self.host!r} is reached from outside and needs TLS; write serve.tls_certificate and serve.tls_key, "
                "or serve.insecure_http = true if something else encrypts"
            )
        if not self.is_loopback and not self.tokens:
            raise ConfigError(
                f"serve.tokens: false lets everybody read who reaches {self.host!r}; leave it out, or serve 127.0.0.1"
            )
        self._check_peers()
        if self.tables_timeout_us == 0:
            raise ConfigError(
                f"serve.tables_timeout: {self.tables_timeout!r} must be longer than zero; write for example '10 seconds'"
            )

    def peer_url(self, host: str) -> str | None:
        """Return the address of the server of a host; None if there are no peers, or if the text is no host's name or address."""
        if self.peers is None or len(host) > _LONGEST_HOST or not is_host(host):
            return None
        return self.peers.replace(_PEER, f"[{host}]" if ":" in host else host)

    @property
    def peers_get_tokens(self) -> bool:
        """Whether a client's token may be forwarded to peers: if nobody between can read it, or the config says that nobody does."""
        return self.peers is not None and (self.peers.startswith("https://") or self.insecure_http or self.is_loopback)

    def _check_variables(self) -> None:
        for name in ("token_variable", "metrics_token_variable"):
            variable = getattr(self, name)
            if not _NAME.fullmatch(variable):
                # It may be the token itself.
                raise ConfigError(f"serve.{name}: is no name of a variable; write letters, digits and _, no token")
        if self.token_variable == self.metrics_token_variable:
            raise ConfigError(
                f"serve.metrics_token_variable: {self.token_variable!r} is serve.token_variable, too; name another variable"
            )

    def _check_peers(self) -> None:
        if self.peers is None:
            if self.peers_authority is not None:
                raise ConfigError("serve.peers: is missing; serve.peers_authority needs it")
            return
        if not _PEERS.fullmatch(self.peers):
            raise ConfigError(
                f"serve.peers: {self.peers!r} is no address of servers; write for example 'https://{{host}}:8787'"
            )
        if not self.peers_get_tokens:
            raise ConfigError(
                f"serve.peers: {self.peers!r} would send tokens that anybody on the way can read; write https://, "
                "or serve.insecure_http = true if something else encrypts"
            )

    def tokens_in(self, environment: Mapping[str, str]) -> Tokens:
        """Return the tokens that an environment holds; ConfigError, which shows none, for wrong ones, and if one is missing."""
        found = Tokens(*(self._held(environment, name) for name in (self.token_variable, self.metrics_token_variable)))
        if set(map(_bare, found.full)) & set(found.metrics):
            raise ConfigError(
                f"serve.metrics_token_variable: {self.metrics_token_variable} holds a token that {self.token_variable} holds, too; "
                "make another one by `openssl rand -hex 32`"
            )
        if not self.tokens and (found.full or found.metrics):
            held = self.token_variable if found.full else self.metrics_token_variable
            raise ConfigError(f"serve.tokens: is false, and {held} holds tokens; remove one of them")
        if not found.full and not self.is_loopback:
            raise ConfigError(
                f"serve.host: {self.host!r} is reached from outside, and {self.token_variable} holds no token; set it, or serve 127.0.0.1"
            )
        if not found.full and self.tokens and self.peers is not None:
            raise ConfigError(
                f"serve.peers: servers that ask each other need the same token, and {self.token_variable} holds none; set it on each host"
            )
        return found

    @staticmethod
    def _held(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
        given = (text.strip() for text in environment.get(name, "").split(","))
        tokens = tuple(dict.fromkeys(text for text in given if text))
        if any(len(_bare(token)) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token) for token in tokens):
            raise ConfigError(
                f"serve.token_variable: {name} holds a token that is shorter than {SHORTEST_TOKEN} characters, or has "
                "others than ASCII's letters, digits and signs; make one by `openssl rand -hex 32`"
            )
        return tokens


def is_loopback(host: str) -> bool:
    """Say whether a name or an address is of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_host(host: str) -> bool:
    """Say whether a text is a host's name or address, and nothing more.

    >>> is_host("db.local"), is_host("db.local/path")
    (True, False)
    """
    try:
        ip_address(host)
    except ValueError:
        return _HOST.fullmatch(host) is not None
    return True
