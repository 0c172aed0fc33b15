"""Generates header fields: malformed, contradictory, repeated and too many."""

from random import Random

HeaderFields = tuple[tuple[str, str], ...]

MEDIA_TYPES = (
    *("application/json", "application/yaml", "application/vnd.kubernetes.protobuf"),
    "application/json; charset=utf-16",
    *("application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"),
    *("application/apply-patch+yaml", "application/cbor", "text/plain", "multipart/form-data; boundary=x", "*/*", ""),
    ";",
    *("application/x-www-form-urlencoded", "APPLICATION/JSON", "application/json, application/yaml", "a/b" * 3000),
    "\xff",
)  # fmt: skip
_TABLE_TYPE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_ACCEPTS = (
    *("*/*", "", ",", ";", "application/yaml", "application/*", "text/html", "application/json;q=0", "*/*;q=NaN"),
    "*/*;q=-1",
    *(_TABLE_TYPE, "application/yaml;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1beta1"),
    *("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=;g=;v=", "*/*;q=inf"),
    "\xe9",
    *("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;stream=watch", "a" * 9000),
    *("application/vnd.kubernetes.protobuf", "application/json;q=1;q=0;q=x", ",".join(["a/b;q=0.1"] * 900), '"'),
    "=;=,=;=",
    "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
    f"{_TABLE_TYPE},{_TABLE_TYPE};q=1e309,*/*;q=1e-309",
)  # fmt: skip
_OTHER_FIELDS = (
    *(("Content-Encoding", value) for value in ("gzip", "identity", "deflate, gzip", "br", "", "\xff", "gzip;q=1")),
    *(("Accept-Encoding", value) for value in ("gzip", "gzip;q=0", "*", "", "gzip;q=", "\xff", "br, gzip ; q = 0.000")),
    *(
        ("User-Agent", value)
        for value in ("", "curl/8", "Mozilla/5.0", "kubectl/v1 (x)", "\xe9", "/", "x" * 9000, "a\tb")
    ),
    *(("If-None-Match", value) for value in ("*", '"', 'W/"x"', "," * 5000, "\xff")),
    *(("Expect", value) for value in ("100-continue", "200-ok")),
    *(("Range", value) for value in ("bytes=0-1", "bytes=" + "0-," * 2000)),
    *(("Upgrade", value) for value in ("websocket", "h2c", "SPDY/3.1")),
    *(("Connection", value) for value in ("close", "keep-alive", "upgrade", "te, \xff", "authorization")),
    *(("X-Remote-User", value) for value in ("admin", "system:admin")),
    *(("Impersonate-User", value) for value in ("system:admin", "", "\xff")),
    *(("Impersonate-Group", value) for value in ("system:masters", "")),
    *(("X-Forwarded-For", value) for value in ("127.0.0.1", "x" * 9000)),
    *(("X-HTTP-Method-Override", value) for value in ("DELETE", "PATCH")),
    *(("Host", value) for value in ("other.test", "", "a b", "\xff", "x" * 5000)),
    *(("Date", value) for value in ("yesterday", "")),
    *(("Cookie", value) for value in ("a=b", "=" * 5000)),
    *(("Origin", value) for value in ("https://evil.test", "null")),
    *(("Sec-WebSocket-Key", value) for value in ("x", "dGhlIHNhbXBsZSBub25jZQ==")),
)


def build_bearer_header(key: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {key}"


_CREDENTIALS = (
    *("Bearer {key}x", "Bearer x{key}", "Basic {key}", "Token {key}", "{key}", "Bearer{key}", "Bearer,{key}"),
    *("bearer {key}", "BEARER   {key}  ", "Bearer {key} {key}", "Bearer\t{key}", 'Bearer "{key}"', "Bearer ={key}"),
    *("", " ", "Bearer", "Bearer ", "Bearer \xff", "Bearer " + "x" * 9000, "Bearer fairlead_", "Basic Og=="),
)  # fmt: skip
"""Nearly valid and invalid credentials."""


def mutate_headers(random: Random, fields: HeaderFields, key: str) -> HeaderFields:
    """Returns the fields with one fault."""
    without = {name: tuple(each for each in fields if each[0] != name) for name in ("Authorization", "Content-Type")}
    match random.randrange(14):
        case 0:
            return (*without["Authorization"], ("Authorization", random.choice(_CREDENTIALS).replace("{key}", key)))
        case 1:
            return random.choice(
                (
                    without["Authorization"],
                    (*fields, ("Authorization", "Bearer x")),
                    (*fields, build_bearer_header(key)),
                )
            )
        case 2:
            return (*without["Content-Type"], ("Content-Type", random.choice(MEDIA_TYPES)))
        case 3 | 4 | 5 | 6 | 7:
            return (*fields, ("Accept", random.choice(_ACCEPTS)))
        case 8:
            extra = tuple(
                (f"X-{number}", "y" * random.choice((0, 10, 400))) for number in range(random.choice((20, 150)))
            )
            return (*fields, *extra)
        case 9:
            return (*fields, *fields)
        case _:
            return (*fields, *(random.choice(_OTHER_FIELDS) for _ in range(random.choice((1, 2, 5)))))
