"""Events in public formats, as their documentation shows them: names, types, epochs, nulls, empty objects, missing fields.

Each function returns the bytes of one file. SAMPLES names it as its producer does.
"""

import gzip
import json
import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

_SNOWPLOW = """app_id platform etl_tstamp collector_tstamp dvce_created_tstamp event event_id txn_id name_tracker v_tracker v_collector
v_etl user_id user_ipaddress user_fingerprint domain_userid domain_sessionidx network_userid geo_country geo_region geo_city geo_zipcode
geo_latitude geo_longitude geo_region_name ip_isp ip_organization ip_domain ip_netspeed page_url page_title page_referrer page_urlscheme
page_urlhost page_urlport page_urlpath page_urlquery page_urlfragment refr_urlscheme refr_urlhost refr_urlport refr_urlpath
refr_urlquery refr_urlfragment refr_medium refr_source refr_term mkt_medium mkt_source mkt_term mkt_content mkt_campaign contexts
se_category se_action se_label se_property se_value unstruct_event tr_orderid tr_affiliation tr_total tr_tax tr_shipping tr_city
tr_state tr_country ti_orderid ti_sku ti_name ti_category ti_price ti_quantity pp_xoffset_min pp_xoffset_max pp_yoffset_min
pp_yoffset_max useragent br_name br_family br_version br_type br_renderengine br_lang br_features_pdf br_features_flash
br_features_java br_features_director br_features_quicktime br_features_realplayer br_features_windowsmedia br_features_gears
br_features_silverlight br_cookies br_colordepth br_viewwidth br_viewheight os_name os_family os_manufacturer os_timezone dvce_type
dvce_ismobile dvce_screenwidth dvce_screenheight doc_charset doc_width doc_height tr_currency tr_total_base tr_tax_base
tr_shipping_base ti_currency ti_price_base base_currency geo_timezone mkt_clickid mkt_network etl_tags dvce_sent_tstamp
refr_domain_userid refr_dvce_tstamp derived_contexts domain_sessionid derived_tstamp event_vendor event_name event_format
event_version event_fingerprint true_tstamp"""
_CLOUDFRONT = """date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query
cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for ssl-protocol ssl-cipher
x-edge-response-result-type cs-protocol-version fle-status fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type
sc-content-type sc-content-len sc-range-start sc-range-end"""
SNOWPLOW, CLOUDFRONT = _SNOWPLOW.split(), _CLOUDFRONT.split()
PATHS = ("/", "/schuhe/größe-42", "/search?q=a+b&n=1", "/cart", "/détails/日本")
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64; rv:136.0) Gecko/20100101 Firefox/136.0", "curl/8.12.1")
CITIES = ("Zürich", "São Paulo", "東京", "")


@dataclass(frozen=True)
class Visit:
    """An event of a person, before it has a format."""

    number: int
    who: int
    at: datetime
    rng: random.Random

    @property
    def us(self) -> int:
        return (self.at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    @property
    def path(self) -> str:
        return PATHS[self.number % len(PATHS)]

    @property
    def uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))


def visits() -> Iterator[Visit]:
    """Yield 45 events of 5 persons, in 3 visits each, by time."""
    rng, start = random.Random(61), datetime(2025, 3, 10, 8, tzinfo=UTC)
    made = [
        (start + timedelta(hours=9 * visit + who, minutes=6 * event, microseconds=rng.randrange(3 * 10**8)), who)
        for who in range(5)
        for visit in range(3)
        for event in range(3)
    ]
    for number, (at, who) in enumerate(sorted(made)):
        yield Visit(number, who, at, rng)


def lines(rows: Iterable[Any]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False, separators=(',', ':'))}\n" for row in rows).encode()


def ga4() -> bytes:
    """GA4's table `events_*`, as BigQuery extracts it: INT64 in texts, without nulls; without consent nobody is named."""

    def param(key: str, **value: object) -> dict[str, object]:
        return {"key": key, "value": value}

    def row(visit: Visit) -> dict[str, Any]:
        name = ("page_view", "user_engagement", "purchase")[visit.number % 3]
        params = [
            param("ga_session_id", int_value=str(visit.us // 10**6)),
            param("page_location", string_value=f"https://shop.example{visit.path}"),
            *([param("engagement_time_msec", int_value=str(100 * visit.number))] if name == "user_engagement" else []),
            *([param("value", double_value=visit.number + 0.5)] if name == "purchase" else []),
        ]
        visit.rng.shuffle(params)
        made: dict[str, Any] = {
            "event_date": f"{visit.at:%Y%m%d}",
            "event_timestamp": str(visit.us),
            "event_name": name,
            "event_params": params,
            "event_bundle_sequence_id": str(visit.us // 10**9 - 2**31),
            "event_server_timestamp_offset": "0",
            "user_pseudo_id": f"{1700000000 + visit.who}.1741590{visit.who}00",
            "privacy_info": {"analytics_storage": "Yes", "ads_storage": "Yes", "uses_transient_token": "No"},
            "user_properties": [],
            "user_first_touch_timestamp": str(1741500000000000 + visit.who),
            "device": {
                "category": "desktop",
                "operating_system": "Linux",
                "language": "de-ch",
                "is_limited_ad_tracking": "No",
                "web_info": {"browser": "Firefox", "browser_version": "136.0", "hostname": "shop.example"},
            },
            "geo": {
                "city": CITIES[visit.who % 4],
                "country": "Switzerland",
                "continent": "Europe",
                "metro": "(not set)",
            },
            "traffic_source": {"name": "(direct)", "medium": "(none)", "source": "(direct)"},
            "stream_id": "2100450278",
            "platform": "WEB",
            "items": [],
            "is_active_user": True,
            "batch_event_index": str(1 + visit.number % 4),
        }
        if name == "purchase":
            made["event_value_in_usd"] = visit.number + 0.5
            made["ecommerce"] = {
                "total_item_quantity": "2",
                "purchase_revenue_in_usd": visit.number + 0.5,
                "transaction_id": f"T{visit.number}",
            }
            made["items"] = [
                {
                    "item_id": f"sku{sku}",
                    "item_name": "Größe 42",
                    "price": 2.25,
                    "quantity": str(sku),
                    "item_params": [],
                }
                for sku in (1, 2)
            ]
        if visit.number == 7:
            made["privacy_info"] = {"analytics_storage": "No", "ads_storage": "No", "uses_transient_token": "Yes"}
            del made["user_pseudo_id"]
        return made

    return lines(map(row, visits()))


def segment() -> bytes:
    """Segment's calls, as its object storage has them: properties are any, and may be empty."""

    def row(visit: Visit) -> dict[str, Any]:
        made: dict[str, Any] = {
            "anonymousId": f"{visit.who}b4a-ünique",
            "channel": "client",
            "context": {
                "ip": f"2001:db8::{visit.who}",
                "library": {"name": "analytics.js", "version": "next-1.76.1"},
                "locale": "de-CH",
                "page": {
                    "path": visit.path,
                    "referrer": "",
                    "search": "",
                    "title": "Schuhe",
                    "url": f"https://shop.example{visit.path}",
                },
                "userAgent": AGENTS[0],
            },
            "integrations": {} if visit.number % 2 else {"All": True},
            "messageId": f"ajs-next-{visit.uuid}",
            "originalTimestamp": f"{visit.at:%Y-%m-%dT%H:%M:%S}.{visit.us // 1000 % 1000:03}Z",
            "receivedAt": f"{visit.at + timedelta(seconds=2):%Y-%m-%dT%H:%M:%S}.000Z",
            "sentAt": f"{visit.at + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}.000Z",
            "timestamp": f"{visit.at:%Y-%m-%dT%H:%M:%S}.{visit.us // 1000 % 1000:03}Z",
            "userId": f"user-{visit.who}" if visit.who % 2 else None,
            "version": 2,
        }
        if visit.number % 9 == 8:
            return made | {"type": "identify", "traits": {"email": "a@shop.example", "plan": None}}
        if visit.number % 2:
            revenue = {"revenue": visit.number / 2} if visit.number % 3 == 0 else {}
            return made | {
                "type": "track",
                "event": "Order Completed" if revenue else "Product Viewed",
                "properties": revenue | ({"products": [{"sku": "A-1", "price": 9}, {"sku": "B 2"}]} if revenue else {}),
            }
        return made | {"type": "page", "name": "Home", "category": None, "properties": made["context"]["page"]}

    return lines(map(row, visits()))


def github() -> bytes:
    """An hour of GitHub's archive: texts as ids, a payload for each type, `org` only for repositories of organisations."""
    types = ("PushEvent", "WatchEvent", "CreateEvent", "IssuesEvent")

    def payload(visit: Visit, type_: str) -> dict[str, Any]:
        if type_ == "PushEvent":
            commits = [
                {
                    "sha": f"{visit.rng.getrandbits(160):040x}",
                    "author": {"email": f"{visit.who}@users.example", "name": "Jürgen O'Neil"},
                    "message": 'fix "quotes"\n\n🎉 and a second line',
                    "distinct": bool(n % 2),
                    "url": "https://api.github.com/repos/o/r/commits/1",
                }
                for n in range(visit.number % 4)
            ]
            sizes = {"size": len(commits), "distinct_size": sum(c["distinct"] for c in commits)}
            return {
                "repository_id": 9,
                "push_id": 22_900_000_000 + visit.number,
                **sizes,
                "ref": "refs/heads/main",
                "commits": commits,
            }
        if type_ == "CreateEvent":
            return {
                "ref": None,
                "ref_type": "repository",
                "master_branch": "main",
                "description": None,
                "pusher_type": "user",
            }
        if type_ == "IssuesEvent":
            labels = [{"id": 1, "name": "bug", "default": True}] if visit.number % 8 == 3 else []
            issue = {
                "id": 5,
                "number": visit.number,
                "user": {"login": "octo"},
                "labels": labels,
                "assignee": None,
                "body": None,
            }
            return {"action": "opened", "issue": issue}
        return {"action": "started"}

    def row(visit: Visit) -> dict[str, Any]:
        type_ = types[visit.number % 4]
        login = f"dev{visit.who}[bot]" if visit.who == 4 else f"dev{visit.who}"
        made: dict[str, Any] = {
            "id": str(47_000_000_000 + visit.number),
            "type": type_,
            "actor": {
                "id": 1000 + visit.who,
                "login": login,
                "display_login": login,
                "gravatar_id": "",
                "url": f"https://api.github.com/users/{login}",
                "avatar_url": "https://avatars.githubusercontent.com/u/1?",
            },
            "repo": {
                "id": 500 + visit.who % 2,
                "name": f"org/repo{visit.who % 2}",
                "url": "https://api.github.com/repos/org/repo",
            },
            "payload": payload(visit, type_),
            "public": True,
            "created_at": f"{visit.at:%Y-%m-%dT%H:%M:%SZ}",
        }
        if visit.who % 2:
            made["org"] = {
                "id": 77,
                "login": "org",
                "gravatar_id": "",
                "url": "https://api.github.com/orgs/org",
                "avatar_url": "",
            }
        return made

    return gzip.compress(lines(map(row, visits())))


def cloudtrail() -> bytes:
    """CloudTrail's documents: services have no user name, and parameters are null, or objects of any form."""

    def row(visit: Visit) -> dict[str, Any]:
        account = {"accountId": "123456789012", "accessKeyId": "ASIAEXAMPLE"}
        identity: dict[str, Any] = {
            "type": "AssumedRole",
            "principalId": f"AROAEXAMPLE:{visit.who}",
            "arn": f"arn:aws:sts::123456789012:assumed-role/dev/{visit.who}",
            **account,
            "sessionContext": {
                "sessionIssuer": {"type": "Role", "userName": "dev"},
                "attributes": {"creationDate": "2025-03-10T07:00:00Z", "mfaAuthenticated": "false"},
            },
        }
        if visit.number % 10 == 9:
            identity = {"type": "AWSService", "invokedBy": "autoscaling.amazonaws.com"}
        made: dict[str, Any] = {
            "eventVersion": "1.11",
            "userIdentity": identity,
            "eventTime": f"{visit.at:%Y-%m-%dT%H:%M:%SZ}",
            "eventSource": "s3.amazonaws.com",
            "eventName": ("ListBuckets", "PutObject", "GetObject")[visit.number % 3],
            "awsRegion": "eu-central-1",
            "sourceIPAddress": f"192.0.2.{visit.who}",
            "userAgent": "[aws-cli/2.24.0]",
            "requestParameters": None if visit.number % 3 == 0 else {"bucketName": "träume", "key": visit.path},
            "responseElements": None,
            "additionalEventData": {"bytesTransferredIn": 0, "bytesTransferredOut": 10 * visit.number},
            "requestID": f"REQ{visit.number // 2}",
            "eventID": visit.uuid,
            "readOnly": visit.number % 3 != 1,
            "eventType": "AwsApiCall",
            "managementEvent": False,
            "recipientAccountId": "123456789012",
            "eventCategory": "Data",
            "tlsDetails": {"tlsVersion": "TLSv1.3", "cipherSuite": "TLS_AES_128_GCM_SHA256"},
        }
        if visit.number % 11 == 5:
            made |= {"errorCode": "AccessDenied", "errorMessage": "Access Denied"}
        return made

    text = json.dumps({"Records": list(map(row, visits()))}, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode())


def _snowplow_row(visit: Visit) -> dict[str, Any]:
    """The fields of an enriched event that have a value."""
    schema = "iglu:com.snowplowanalytics.snowplow"
    page = {"schema": f"{schema}/web_page/jsonschema/1-0-0", "data": {"id": visit.uuid}}
    made: dict[str, Any] = {
        "app_id": "shop",
        "platform": "web",
        "etl_tstamp": visit.at + timedelta(seconds=3),
        "collector_tstamp": visit.at,
        "dvce_created_tstamp": visit.at - timedelta(seconds=1),
        "event": ("page_view", "page_ping", "struct")[visit.number % 3],
        "event_id": visit.uuid,
        "name_tracker": "sp",
        "v_tracker": "js-4.5.0",
        "v_collector": "ssc-3.3.0-kinesis",
        "v_etl": "snowplow-enrich-kinesis-5.2.0-common-5.2.0",
        "user_ipaddress": f"198.51.100.{visit.who}",
        "domain_userid": f"{visit.who}2f3c1d5-6a77",
        "domain_sessionidx": 1 + visit.number % 3,
        "geo_country": "CH",
        "geo_city": CITIES[visit.who % 4] or None,
        "geo_latitude": 47.3667,
        "geo_longitude": 8.55,
        "page_url": f"https://shop.example{visit.path}",
        "page_title": 'Schuhe "42" | Größe',
        "page_urlport": 443,
        "useragent": AGENTS[0],
        "br_cookies": True,
        "contexts": {"schema": f"{schema}/contexts/jsonschema/1-0-0", "data": [page]},
        "derived_tstamp": visit.at,
        "event_vendor": "com.snowplowanalytics.snowplow",
        "event_name": ("page_view", "page_ping", "event")[visit.number % 3],
        "event_format": "jsonschema",
        "event_version": "1-0-0",
    }
    if visit.number % 3 == 2:
        made |= {"se_category": "shop", "se_action": "add", "se_value": visit.number / 4}
    return made


def snowplow() -> bytes:
    """Snowplow's enriched events: 131 fields with tabs between them, none for null, JSON and quotes as they come."""

    def text(value: object) -> str:
        if isinstance(value, datetime):
            return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}"
        if isinstance(value, dict):
            return json.dumps(value, separators=(",", ":"))
        return "" if value is None else str(int(value) if isinstance(value, bool) else value)

    rows = map(_snowplow_row, visits())
    return "".join("\t".join(text(row.get(name)) for name in SNOWPLOW) + "\n" for row in rows).encode()


def snowplow_json() -> bytes:
    """Snowplow's enriched events as its analytics SDKs transform them: nulls, a list of each context, ISO times."""

    def row(visit: Visit) -> dict[str, Any]:
        made = _snowplow_row(visit)
        contexts = {
            "contexts_com_snowplowanalytics_snowplow_web_page_1": [
                page["data"] for page in made.pop("contexts")["data"]
            ]
        }
        texts = {
            name: f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z" if isinstance(value, datetime) else value
            for name, value in made.items()
        }
        names = [name for name in SNOWPLOW if name not in ("contexts", "unstruct_event", "derived_contexts")]
        return {name: texts.get(name) for name in names} | {"geo_location": "47.3667,8.55"} | contexts

    return lines(map(row, visits()))


def nginx() -> bytes:
    """nginx's log in its format `combined`; the line of a client that speaks no HTTP has its escapes."""

    def row(visit: Visit) -> str:
        request = rf"GET {visit.path} HTTP/1.1" if visit.number % 11 else r"\x16\x03\x01\x00\xEE\x01"
        referrer = "-" if visit.number % 2 else r"https://shop.example/\x22q\x22"
        status = 200 if visit.number % 11 else 400
        agent = AGENTS[visit.who % 2] if visit.number % 11 else "-"
        size = 100 * visit.number
        return f'2001:db8::{visit.who} - {"admin" if visit.who == 1 else "-"} [{visit.at:%d/%b/%Y:%H:%M:%S} +0000] "{request}" {status} {size} "{referrer}" "{agent}"\n'

    return "".join(map(row, visits())).encode()


def cloudfront() -> bytes:
    """A standard log of CloudFront: two lines with `#`, 33 fields with tabs between them, `-` for none."""

    def row(visit: Visit) -> str:
        values: dict[str, object] = {
            "date": f"{visit.at:%Y-%m-%d}",
            "time": f"{visit.at:%H:%M:%S}",
            "x-edge-location": "ZRH55-P1",
            "sc-bytes": 100 * visit.number,
            "c-ip": f"2001:db8::{visit.who}",
            "cs-method": "GET",
            "cs(Host)": "d111111abcdef8.cloudfront.net",
            "cs-uri-stem": "/schuhe/gr%C3%B6%C3%9Fe-42",
            "sc-status": "000" if visit.number == 11 else 200,
            "cs(User-Agent)": "Mozilla/5.0%20(X11;%20Linux%20x86_64)",
            "cs-uri-query": "q=a+b" if visit.number % 2 else "-",
            "x-edge-result-type": ("Hit", "Miss", "Error")[visit.number % 3],
            "x-edge-request-id": f"req{visit.number}==",
            "x-host-header": "shop.example",
            "cs-protocol": "https",
            "cs-bytes": 23,
            "time-taken": f"{visit.number / 1000:.3f}",
            "ssl-protocol": "TLSv1.3",
            "ssl-cipher": "TLS_AES_128_GCM_SHA256",
            "x-edge-response-result-type": "Hit",
            "cs-protocol-version": "HTTP/2.0",
            "c-port": 11040,
            "time-to-first-byte": "0.001",
            "x-edge-detailed-result-type": "Hit",
            "sc-content-type": "text/html",
            "sc-content-len": "-" if visit.number % 4 else 78,
        }
        return "\t".join(str(values.get(name, "-")) for name in CLOUDFRONT) + "\n"

    head = f"#Version: 1.0\n#Fields: {' '.join(CLOUDFRONT)}\n"
    return gzip.compress((head + "".join(map(row, visits()))).encode())


def stripe() -> bytes:
    """Stripe's events, a list of its API in pretty print: the object of each type has other fields."""

    def row(visit: Visit) -> dict[str, Any]:
        type_ = ("invoice.paid", "customer.updated", "charge.succeeded")[visit.number % 3]
        customer, metadata = f"cus_{visit.who}QXg1o8vlGvG", {"größe": "42"} if visit.number % 4 else {}
        money = {
            "customer": customer,
            "currency": "chf",
            "metadata": metadata,
            "created": visit.us // 10**6,
            "livemode": False,
        }
        object_: dict[str, Any] = {
            "invoice.paid": {
                "id": f"in_{visit.number}",
                "object": "invoice",
                "amount_paid": 100 * visit.number,
                **money,
            },
            "charge.succeeded": {
                "id": f"ch_{visit.number}",
                "object": "charge",
                "amount": 100 * visit.number,
                "payment_method_details": {"card": {"brand": "visa", "last4": "4242"}, "type": "card"},
                **money,
            },
            "customer.updated": {"id": customer, "object": "customer", "email": None, "metadata": metadata},
        }[type_]
        data = {"object": object_} | (
            {"previous_attributes": {"email": "a@shop.example"}} if "updated" in type_ else {}
        )
        return {
            "id": f"evt_{visit.number}NG8Du2eZvKYlo2C",
            "object": "event",
            "api_version": "2025-02-24.acacia",
            "created": visit.us // 10**6,
            "data": data,
            "livemode": False,
            "pending_webhooks": visit.number % 2,
            "request": {"id": f"req_{visit.number}", "idempotency_key": None}
            if visit.number % 2
            else {"id": None, "idempotency_key": None},
            "type": type_,
        }

    rows = sorted(map(row, visits()), key=lambda event: -event["created"])
    document = {"object": "list", "data": rows, "has_more": False, "url": "/v1/events"}
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


def wikimedia() -> bytes:
    """Wikimedia's stream `recentchange`: other fields for each type, and `log_params` is a list, an object or a text."""

    def row(visit: Visit) -> dict[str, Any]:
        type_ = ("edit", "new", "log", "categorize")[visit.number % 4]
        title = ("Zürich", "東京", "Catégorie:Été", 'User:Ann/"x"')[visit.number % 4]
        made: dict[str, Any] = {
            "$schema": "/mediawiki/recentchange/1.0.0",
            "meta": {
                "uri": "https://de.wikipedia.org/wiki/Z%C3%BCrich",
                "request_id": f"req-{visit.number // 2}",
                "id": visit.uuid,
                "domain": "de.wikipedia.org",
                "stream": "mediawiki.recentchange",
                "dt": f"{visit.at + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}.123Z",
                "topic": "eqiad.mediawiki.recentchange",
                "partition": 0,
                "offset": 5_400_000_000 + visit.number,
            },
            "id": 330_000_000 + visit.number,
            "type": type_,
            "namespace": visit.number % 3,
            "title": title,
            "title_url": "https://de.wikipedia.org/wiki/Z%C3%BCrich",
            "comment": "" if visit.number % 2 else "/* Größe */ tippfehler",
            "timestamp": visit.us // 10**6,
            "user": f"203.0.113.{visit.who}" if visit.who % 2 else f"Bücherwurm {visit.who}",
            "bot": visit.who == 2,
            "server_url": "https://de.wikipedia.org",
            "server_name": "de.wikipedia.org",
            "server_script_path": "/w",
            "wiki": "dewiki",
            "parsedcomment": "",
        }
        if type_ == "edit":
            sizes = {
                "length": {"old": 1000, "new": 1000 + visit.number},
                "revision": {"old": visit.number, "new": visit.number + 1},
            }
            return (
                made
                | {"minor": True, "patrolled": False, "notify_url": "https://de.wikipedia.org/w/index.php?diff=1"}
                | sizes
            )
        if type_ == "new":
            return made | {"minor": False, "patrolled": True, "length": {"new": 500}, "revision": {"new": visit.number}}
        if type_ == "log":
            params: object = ([], {"userid": visit.who}, "")[visit.number // 4 % 3]
            made |= {"id": None} if visit.number % 8 == 2 else {}
            return made | {
                "log_id": 9 + visit.number,
                "log_type": "newusers",
                "log_action": "create",
                "log_params": params,
                "log_action_comment": "neu",
            }
        return made

    return lines(map(row, visits()))


SAMPLES: dict[str, Callable[[], bytes]] = {
    "ga4/events_20250310.json": ga4,
    "segment/1741593600000.json.gz": lambda: gzip.compress(segment()),
    "github/2025-03-10-8.json.gz": github,
    "cloudtrail/123456789012_CloudTrail_eu-central-1_20250310T0805Z_abc.json.gz": cloudtrail,
    "snowplow/part-00000": snowplow,
    "snowplow_json/part-00000.json": snowplow_json,
    "nginx/access.log": nginx,
    "cloudfront/E2EXAMPLE.2025-03-10-08.abcd1234.gz": cloudfront,
    "stripe/events.json": stripe,
    "wikimedia/recentchange.jsonl": wikimedia,
}
