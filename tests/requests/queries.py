"""Generates query strings: every parameter of the API, with valid, invalid and huge values."""

from base64 import urlsafe_b64encode
from random import Random
from urllib.parse import quote

_NUMBERS = ("0", "1", "2", "500", "-1", "+1", "1e3", "0x10", " 1", "1.5", "", "9" * 18, "9" * 25, "٣", "NaN", "1_0")
_FLAGS = ("true", "false", "1", "0", "", "True", "maybe", "\x00", "nil")
# No future versions: the server rightly waits for those, and answers with a timeout.
_VERSIONS = ("", "0", "1", "00", "-1", "abc", "1.0", "9" * 24, "\x00", "٣", "1 or 1=1")
_SELECTORS = (
    *("", "protected=yes", "protected!=yes"),
    *("a", "!a", "a in (b,c)", "a notin (b)", "a>1", "a<9", ",", "a,", ",a", "a=b=c"),
    "a in",
    *("a in (", "a in (b", "a in )", "(a)", "!", "!!a", "a==b", "a=!b", "=", "a/b/c=d", "a>b", "a>" + "9" * 5000),
    "\x00",
    *("é=1", "a=é", "metadata.name=a", "metadata.name!=a", "metadata.namespace=fuzz-0", "status.phase=Ready", "\\"),
    "a\\,b",
    *("metadata.name=" + "\\" * 999, "spec.nope=1", "type=Normal", "involvedObject.name=x", "metadata.name=a=b"),
    *("a" * 5000, ",".join(f"k{n}=v" for n in range(2000)), f"a in ({','.join(map(str, range(3000)))})", "!" * 3000),
    *("(" * 3000, "metadata.name=a," * 1500, "a notin (,)", "a in (,,,)", "a b", "a\tin\n(b)", "'a'='b'", "A=B"),
    "x" * 64,
)  # fmt: skip


def _encode_token(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _encode_position(revision: str, after: str = '["",""]') -> str:
    return _encode_token(f'{{"v":"meta.k8s.io/v1","rv":{revision},"after":{after}}}')


_CONTINUE_TOKENS = (
    *("", "x", "=", "====", "é", "\x00", "A" * 20_000),
    *(_encode_token(text) for text in ("{}", "[]", "null", "1", "{", "[" * 500, "[" * 5000)),
    *(_encode_position(revision) for revision in ("0", "-1", "-2", "1.5", "true", '"1"', "null", "9" * 30, "1e400")),
    *(_encode_position("1", after) for after in ('"ab"', "[]", "[1,2]", '["a"]', '{"a":1,"b":2}', '["a","b","c"]')),
    _encode_position("1", '["a","\\u0000"]'),
)  # fmt: skip

_VALUES: dict[str, tuple[str, ...]] = {
    "labelSelector": _SELECTORS,
    "fieldSelector": _SELECTORS,
    "limit": _NUMBERS,
    "continue": _CONTINUE_TOKENS,
    "resourceVersion": _VERSIONS,
    "resourceVersionMatch": ("Exact", "NotOlderThan", "", "exact", "Whatever", "\x00"),
    "watch": _FLAGS,
    "timeoutSeconds": _NUMBERS,
    "allowWatchBookmarks": _FLAGS,
    "sendInitialEvents": _FLAGS,
    "pretty": _FLAGS,
    "dryRun": ("All", "", "all", "None", "All,All", "\x00"),
    "fieldManager": (
        "fuzz",
        "",
        "é",
        "x" * 129,
        "x" * 9000,
        "\x00",
        "a\nb",
        "kubectl",
        "before-first-apply",
        "\u202e",
    ),
    "fieldValidation": ("Strict", "Warn", "Ignore", "", "strict", "\x00"),
    "force": _FLAGS,
    "gracePeriodSeconds": _NUMBERS,
    "propagationPolicy": ("Foreground", "Background", "Orphan", "", "foreground", "nil", "\x00"),
    "orphanDependents": _FLAGS,
    "includeObject": ("None", "Metadata", "Object", "", "none", "\x00"),
    "hash": ("", "0", "x" * 9000),
    "verbose": _FLAGS,
    "timeout": ("1s", "-1s", "0", "forever"),
    "token": ("x",),
    "x" * 500: ("y" * 500,),
}
_RAW_PARAMETERS = (
    "",
    "=",
    "&",
    "==",
    "%",
    "%zz",
    "%00=%00",
    "a=%ff",
    "\xff=\xff",
    ";",
    "?",
    "watch",
    "limit",
    "a[]=b",
    "=x",
    "+",
    "%26",
)


def choose_parameters(random: Random, count: int) -> tuple[str, ...]:
    """Chooses encoded parameters, each as it stands between the ampersands."""
    return tuple(_choose_parameter(random) for _ in range(count))


def _choose_parameter(random: Random) -> str:
    if random.random() < 0.1:
        return random.choice(_RAW_PARAMETERS)
    name = random.choice(tuple(_VALUES))
    value = random.choice(_VALUES[name])
    return f"{name}={quote(value)}"
