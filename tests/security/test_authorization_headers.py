"""Ten thousand Authorization headers that are nearly right: none lets anybody in, and none does harm (T-10, T-45).

They are made from keys that work and from keys that no longer do, and sent as bytes: with NUL, broken UTF-8, folded
lines and whatever else no library would send.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from string import ascii_letters, digits
from urllib.parse import quote

import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server
from tests.security.headers import bearer
from tests.security.raw_http import Ask, Line, answers

COUNT, CONNECTIONS, SEED = 10_000, 16, 20_260_101
REFUSED = (400, 401, 431)
KEYS = f"{MANAGEMENT}/apis/management.service.sh/v1/ownedaccesskeys"
COOKIE = "__Host-service_access_key"

_SIGNS = ascii_letters + digits + "_-.~+/="
_STRANGE = (
    *("\x00", "\x01", "\x7f", "\t", " ", "\r", "\n", "\r\n", "\r\n ", "\x1c", "\x85", "\xa0", "\xff", "\xc0\x80"),
    *("\u00e9", "\u0430", "\u2028", "\u200b", "\ufeff", "\uff41", "\U0001d41a"),
    *(",", ";", '"', "'", "%00", "%20", "\\", "{", "$", "*", "?", "../", "<", ":"),
)
_LOOK_ALIKE = {"a": "\u0430", "e": "\u0435", "o": "\u043e", "i": "\u0456", "f": "\uff46", "_": "\uff3f", "K": "\u212a"}
_SCHEMES = (
    *("Basic", "Digest", "Token", "Negotiate", "bearer:", "Bearer,", "Bearer=", "Bearer;", "Bear", "Bearers", "", "B"),
    *("Bearer\x00", "Bearer\t", "Bearer\x0b", "\x00Bearer", "B\u0435arer", "\uff22earer", "Bearer\xa0", "X Bearer"),
)
_WHOLE = (
    *("{key}", "Bearer{key}", "Bearer {key} {key}", "Bearer {key},Bearer {key}", "Bearer {key}, {key}"),
    *('Bearer "{key}"', "Bearer '{key}'", "Bearer <{key}>", "Bearer token={key}", "Bearer Bearer {key}", "Bearer"),
    *(
        "Bearer ",
        "",
        " ",
        "Bearer null",
        "Bearer undefined",
        "Bearer \r\n {key}",
        "Bearer\r\n\t{key}",
        "Bearer {key}\x00",
    ),
    *(
        "Bearer {key}\r\nAuthorization: Bearer {key}",
        "Bearer {key}\nX: y",
        "Bearer %s" % ("x" * 5000),
        "Bearer {key}==",
    ),
)

Mutation = Callable[[Random, str], str]


def one_sign_changed(random: Random, key: str) -> str:
    at = random.randrange(len(key))
    return key[:at] + random.choice(_SIGNS) + key[at + 1 :]


def one_bit_flipped(random: Random, key: str) -> str:
    at = random.randrange(len(key))
    return key[:at] + chr(ord(key[at]) ^ 1 << random.randrange(8)) + key[at + 1 :]


def one_sign_less(random: Random, key: str) -> str:
    at = random.randrange(len(key))
    return key[:at] + key[at + 1 :]


def something_strange_inside(random: Random, key: str) -> str:
    at = random.randrange(len(key) + 1)
    return key[:at] + random.choice(_STRANGE) + key[at:]


def a_beginning(random: Random, key: str) -> str:
    return key[: random.randrange(len(key))]


def an_end(random: Random, key: str) -> str:
    return key[random.randrange(1, len(key)) :]


def more_behind(random: Random, key: str) -> str:
    return key + "".join(random.choices(_SIGNS, k=random.randrange(1, 40)))


def more_before(random: Random, key: str) -> str:
    return "".join(random.choices(_SIGNS, k=random.randrange(1, 40))) + key


def another_case(random: Random, key: str) -> str:
    return "".join(each.swapcase() if random.random() < 0.1 else each for each in key)


def two_signs_exchanged(random: Random, key: str) -> str:
    first, second = sorted(random.sample(range(len(key)), 2))
    return key[:first] + key[second] + key[first + 1 : second] + key[first] + key[second + 1 :]


def looking_alike(random: Random, key: str) -> str:
    return "".join(_LOOK_ALIKE.get(each, each) if random.random() < 0.5 else each for each in key)


def encoded_otherwise(random: Random, key: str) -> str:
    ways = (b64encode(key.encode()).decode(), quote(key, safe="").replace("_", "%5F"), key.encode().hex(), key[::-1])
    return random.choice(ways)


def random_of_that_form(random: Random, key: str) -> str:
    return key[:9] + "".join(random.choices(ascii_letters + digits + "-_", k=len(key) - 9))


MUTATIONS: Sequence[Mutation] = (
    one_sign_changed,
    one_bit_flipped,
    one_sign_less,
    something_strange_inside,
    a_beginning,
    an_end,
    more_behind,
    more_before,
    another_case,
    two_signs_exchanged,
    looking_alike,
    encoded_otherwise,
    random_of_that_form,
)


def is_right(header: str, key: str) -> bool:
    """Whether a header says the key after all. Spaces and tabs around it mean nothing, and a newline ends it."""
    scheme, _, token = header.partition("\n")[0].strip(" \t\r").partition(" ")
    return scheme.lower() == "bearer" and token.strip(" \t") == key


def nearly_right(random: Random, key: str) -> Iterator[str]:
    """Values of the header, each once."""
    made = {each.replace("{key}", key): None for each in (*_WHOLE, *(f"{scheme} {{key}}" for scheme in _SCHEMES))}
    while len(made) < 2 * COUNT:
        scheme = "Bearer" if random.random() < 0.9 else random.choice((*_SCHEMES, "bearer", "BEARER"))
        made[f"{scheme} {random.choice(MUTATIONS)(random, key)}"] = None
    return (each for each in made if not is_right(each, key))


def asks(key: str, ended: Iterable[str]) -> Iterator[Ask]:
    """The requests: each with one bad header, and now and then with something beside it that would be good alone."""
    random = Random(SEED)
    wrong = nearly_right(random, key)
    yield from (Ask("GET", CONFIGMAPS, headers=(bearer(each),)) for each in ended)
    yield Ask("GET", CONFIGMAPS, headers=(bearer(key), bearer(key)))
    for number in range(COUNT):
        bad = ("Authorization", next(wrong).encode().decode("latin-1"))
        beside: tuple[tuple[str, str], ...] = ()
        if number % 20 == 0:
            good = ("Cookie", f"{COOKIE}={key}"), ("X-Remote-User", "admin"), bearer(key)
            # Of two headers, one that is no ASCII is not seen by anybody, and the good one is left.
            beside = (random.choice(good[: 3 if bad[1].isascii() else 2]),)
        fields = [bad, *beside]
        random.shuffle(fields)
        yield Ask("GET", CONFIGMAPS, headers=tuple(fields))


async def let_in(server: Server, wrong: Iterable[Ask]) -> list[tuple[tuple[tuple[str, str], ...], int]]:
    """Those that got another answer than a refusal, with that answer."""
    waiting, found = iter(wrong), list[tuple[tuple[tuple[str, str], ...], int]]()

    async def send() -> None:
        async with Line(server) as line:
            for ask in waiting:
                answer = await line.ask(ask)
                if answer.status not in REFUSED:
                    found.append((ask.headers, answer.status))

    await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
    return found


@pytest.fixture(scope="module")
def ended(shared: Server) -> list[str]:
    """Keys that were good once: one that is disabled, one that is deleted, and one that was rotated."""
    values = []
    with shared.client() as client:
        for name in ("disabled", "deleted", "rotated"):
            body = {
                "apiVersion": "management.service.sh/v1",
                "kind": "OwnedAccessKey",
                "metadata": {"name": f"once-{name}"},
            }
            made = client.post(KEYS, json=body).raise_for_status().json()
            values.append(str(made["spec"]["key"]))
            with shared.client(values[-1]) as holder:
                holder.get(CONFIGMAPS).raise_for_status()
        merge = {"Content-Type": "application/merge-patch+json"}
        client.patch(f"{KEYS}/once-disabled", json={"spec": {"disabled": True}}, headers=merge).raise_for_status()
        client.delete(f"{KEYS}/once-deleted").raise_for_status()
        client.post(f"{KEYS}/once-rotated/rotate").raise_for_status()
    return values


async def test_t45_no_header_that_is_nearly_right_lets_anybody_in(server: Server, ended: list[str]) -> None:
    async with Line(server) as line:
        assert (await line.ask(Ask("GET", CONFIGMAPS, headers=(bearer(server.key),)))).status == 200
    assert await let_in(server, asks(server.key, ended)) == []


@pytest.mark.parametrize("header", ["Impersonate-Group", "Impersonate-Uid", "Impersonate-User", "Impersonate-Extra-X"])
def test_t18_whom_one_acts_as_is_not_left_out_because_it_cannot_be_read(server: Server, header: str) -> None:
    named = () if header == "Impersonate-User" else (("Impersonate-User", "admin"),)
    (answer,) = answers(server, Ask("GET", CONFIGMAPS, headers=(bearer(server.key), *named, (header, "gr\xfcn"))))
    assert answer.status == 400


def test_what_is_sent_is_never_right(ended: list[str]) -> None:
    """Or the test above would prove nothing by its refusals."""
    key = ended[0]
    made = [ask for ask in asks(key, ()) if len(ask.headers) == 1]
    assert len({ask.headers for ask in made}) == len(made) > COUNT * 0.9
    assert not any(is_right(ask.headers[0][1], key) for ask in made)
