"""The rows in the order of measurement, with their aims: reads first, while the number of objects is
unchanged."""

from dataclasses import replace

from bench.aims import PEER_CPU, at_least, at_most, of_ceiling, of_get_ceiling
from bench.compare import Row
from bench.fanout import Delay, Throughput
from bench.objects import APPS, TEAMS, build_app
from bench.patches import APPLY, JSON_PATCH
from bench.quiet_gets import Beside
from bench.requests import Requests
from bench.scale import Scale
from bench.scoped import Scoped
from bench.wrk import Request

PAGE = 500
EVENTS_PER_SECOND = 80_000
DELAY_MS = 250
LISTING_CLIENTS = 2
"""The connections that list all objects beside the quiet client."""

_OBJECT = f"{APPS}/app-{{object}}"
_NEW = build_app("new-{n}", {"team": "team-new"}).decode()
_PATCH = '[{"op":"replace","path":"/spec/displayName","value":"Ingress NGINX {n}"}]'
_APPLIED = build_app("app-{object}").decode().replace("Ingress NGINX", "Ingress NGINX {n}")

GET = Requests("GET one object", Request("GET", _OBJECT), aim=of_ceiling(0.5), peer_aim=PEER_CPU)
CREATE = Requests("CREATE", Request("POST", APPS, _NEW), aim=of_get_ceiling(0.2), peer_aim=PEER_CPU)
UPDATE = Requests("UPDATE", Request("PUT", _OBJECT), connections=16, aim=of_get_ceiling(0.15), peer_aim=PEER_CPU)
PATCH = Requests(
    "JSON PATCH",
    Request("PATCH", _OBJECT, _PATCH, JSON_PATCH),
    connections=16,
    aim=of_get_ceiling(0.15),
    peer_aim=PEER_CPU,
)
# Forced, because the creator of the objects manages their fields.
_APPLY = Requests(
    "server-side apply",
    Request("PATCH", f"{_OBJECT}?fieldManager=bench&force=true", _APPLIED, APPLY),
    connections=16,
    aim=of_get_ceiling(0.08),
)
_DELETE = Requests("DELETE", Request("DELETE", f"{APPS}/old-{{n}}"), connections=16, aim=of_get_ceiling(0.2))


def build_rows(scale: Scale) -> tuple[Row, ...]:
    return (
        GET,
        *_build_list_rows(scale),
        Beside(GET, replace(_build_list_all(scale), connections=LISTING_CLIENTS)),
        *(CREATE, UPDATE, PATCH, _APPLY, _DELETE),
        *_build_watch_rows(scale),
    )


def build_own_rows() -> tuple[Row, ...]:
    """Rows of our own server only."""
    return (Scoped(GET),)


def _build_list_rows(scale: Scale) -> tuple[Row, ...]:
    objects, selected_objects = scale.objects, scale.objects // TEAMS
    selected = Request("GET", f"{APPS}?labelSelector=team%3Dteam-07")
    return (
        Requests(f"LIST {PAGE}", Request("GET", f"{APPS}?limit={PAGE}"), items=PAGE, aim=of_ceiling(0.5)),
        _build_list_all(scale),
        Requests(
            f"LIST by label, {selected_objects} of {objects:,}",
            selected,
            items=selected_objects,
            aim=of_get_ceiling(0.021),
        ),
    )


def _build_list_all(scale: Scale) -> Requests:
    # Few connections: each response has several megabytes, and clients rarely request two at once.
    return Requests(
        f"LIST all {scale.objects:,}",
        Request("GET", APPS),
        connections=4,
        items=scale.objects,
        aim=of_ceiling(0.5),
    )


def _build_watch_rows(scale: Scale) -> tuple[Row, ...]:
    """With many watches, delays are measured with one team per watch: everything would be a million events a second,
    which such a machine can neither send nor read."""
    pace, fewest = scale.changes_per_second, min(scale.audiences)
    return (
        *(Throughput(size, at_least(EVENTS_PER_SECOND)) for size in scale.audiences),
        *(Delay(size, pace, by_team=size > fewest, aim=at_most(DELAY_MS)) for size in scale.audiences),
    )
