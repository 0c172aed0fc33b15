"""What is measured, in this order: reads first, while there are as many objects as were seeded."""

from bench.compare import Row
from bench.fanout import JSON_PATCH, Delay, Throughput
from bench.objects import APPS, OBJECTS, TEAMS, app
from bench.requests import Requests
from bench.scoped import Scoped
from bench.wrk import Request

PAGE = 500
_PATCH = '[{"op":"replace","path":"/spec/displayName","value":"Ingress NGINX {n}"}]'

_GET = Requests("GET one object", Request("GET", f"{APPS}/app-{{object}}"))

ROWS: tuple[Row, ...] = (
    _GET,
    Scoped(_GET),
    Requests(f"LIST {PAGE} of {OBJECTS:,}", Request("GET", f"{APPS}?limit={PAGE}"), items=PAGE),
    # Few connections: each answer is of several megabytes, and a client seldom asks for two of them at once.
    Requests(f"LIST all {OBJECTS:,}", Request("GET", APPS), connections=4, items=OBJECTS),
    Requests(
        f"LIST by label, {OBJECTS // TEAMS} of {OBJECTS:,}",
        Request("GET", f"{APPS}?labelSelector=team%3Dteam-07"),
        items=OBJECTS // TEAMS,
    ),
    Requests("CREATE", Request("POST", APPS, app("new-{n}").decode())),
    Requests("JSON PATCH", Request("PATCH", f"{APPS}/app-{{object}}", _PATCH, JSON_PATCH)),
    Throughput(),
    Delay(),
)
