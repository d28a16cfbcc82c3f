"""Patterns of usual access logs, by the name that `source.preset` has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A log's pattern, and what follows from it."""

    pattern: str
    key: str
    """The column of the client."""
    time: str
    time_format: str | None = None
    """The format of the time; None for ISO 8601."""
    comment: str | None = None


_QUOTED = r'(?:[^"\\]|\\.)*'
_REQUEST = (
    rf'"(?P<request>(?P<request_method>[A-Z]+) (?P<request_uri>[^" ]*)(?: (?P<server_protocol>[^" ]+))?|{_QUOTED})"'
)
_NGINX = (
    r"^(?P<remote_addr>\S+) \S+ (?:-|(?P<remote_user>.*?)) \[(?P<time_local>[^\]]+)\] "
    rf"{_REQUEST} (?P<status>\d{{3}}) (?:-|(?P<body_bytes_sent>\d+))"
)
_AGENT = rf' "(?:-|(?P<http_referer>{_QUOTED}))" "(?:-|(?P<http_user_agent>{_QUOTED}))"'
_TIME_LOCAL = "dd/MMM/yyyy:HH:mm:ss Z"
_CLOUDFRONT = (
    "x_edge_location", "sc_bytes", "c_ip", "cs_method", "cs_host", "cs_uri_stem", "sc_status", "cs_referer", "cs_user_agent",
    "cs_uri_query", "cs_cookie", "x_edge_result_type", "x_edge_request_id", "x_host_header", "cs_protocol", "cs_bytes", "time_taken",
)  # fmt: skip
_ALB = (
    r"^(?P<type>\S+) (?P<time>\S+) (?P<elb>\S+) (?P<client_ip>\S+):(?P<client_port>\d+) (?:-|(?P<target_ip>\S+):(?P<target_port>\d+)) "
    r"(?:-1|(?P<request_processing_time>[\d.]+)) (?:-1|(?P<target_processing_time>[\d.]+)) (?:-1|(?P<response_processing_time>[\d.]+)) "
    r"(?:-|(?P<elb_status_code>\d+)) (?:-|(?P<target_status_code>\d+)) (?P<received_bytes>\d+) (?P<sent_bytes>\d+) "
    rf'"(?P<request>(?P<request_verb>[A-Z]+) (?P<request_url>[^" ]*) (?P<request_proto>[^" ]+)|{_QUOTED})" "(?:-|(?P<user_agent>{_QUOTED}))" '
    r'(?:-|(?P<ssl_cipher>\S+)) (?:-|(?P<ssl_protocol>\S+)) (?:-|(?P<target_group_arn>\S+)) "(?P<trace_id>[^"]*)"'
)
PRESETS = {
    "nginx": Preset(f"{_NGINX}{_AGENT}", "remote_addr", "time_local", _TIME_LOCAL),
    # The common format ends behind the bytes.
    "apache": Preset(f"{_NGINX}(?:$|{_AGENT})", "remote_addr", "time_local", _TIME_LOCAL),
    "cloudfront": Preset(
        r"^(?P<time>\d{4}-\d\d-\d\d\t\d\d:\d\d:\d\d)"
        + "".join(rf"\t(?:-|(?P<{name}>[^\t]*))" for name in _CLOUDFRONT)
        + r"\t",
        "c_ip",
        "time",
        "yyyy-MM-dd\tHH:mm:ss",
        "#",
    ),
    "alb": Preset(_ALB, "client_ip", "time"),
}
