"""The rows in the order of measurement, with their aims: reads first, while the number of objects is
unchanged."""

from bench.aims import at_least, at_most, of_ceiling, of_get_ceiling
from bench.compare import Row
from bench.fanout import Delay, Throughput
from bench.objects import APPS, TEAMS, build_app
from bench.patches import APPLY, JSON_PATCH
from bench.requests import Requests
from bench.scale import Scale
from bench.scoped import Scoped
from bench.wrk import Request

PAGE = 500
EVENTS_PER_SECOND = 80_000
DELAY_MS = 250

GET = Requests("GET one object", Request("GET", f"{APPS}/app-{{object}}"), aim=of_ceiling(0.5))
_NEW = build_app("new-{n}", {"team": "team-new"}).decode()
CREATE = Requests("CREATE", Request("POST", APPS, _NEW), aim=of_get_ceiling(0.2))

_PATCH = '[{"op":"replace","path":"/spec/displayName","value":"Ingress NGINX {n}"}]'
_APPLIED = build_app("app-{object}").decode().replace("Ingress NGINX", "Ingress NGINX {n}")
# Forced, because the creator of the objects manages their fields.
_APPLY = f"{APPS}/app-{{object}}?fieldManager=bench&force=true"


def build_rows(scale: Scale) -> tuple[Row, ...]:
    return (GET, *_build_list_rows(scale), CREATE, *_build_patch_rows(), *_build_watch_rows(scale))


def build_own_rows() -> tuple[Row, ...]:
    """Rows of our own server only."""
    return (Scoped(GET),)


def _build_list_rows(scale: Scale) -> tuple[Row, ...]:
    objects, selected_objects = scale.objects, scale.objects // TEAMS
    selected = Request("GET", f"{APPS}?labelSelector=team%3Dteam-07")
    return (
        Requests(f"LIST {PAGE}", Request("GET", f"{APPS}?limit={PAGE}"), items=PAGE, aim=of_ceiling(0.5)),
        # Few connections: each response has several megabytes, and clients rarely request two at once.
        Requests(f"LIST all {objects:,}", Request("GET", APPS), connections=4, items=objects, aim=of_ceiling(0.5)),
        Requests(
            f"LIST by label, {selected_objects} of {objects:,}",
            selected,
            items=selected_objects,
            aim=of_get_ceiling(1_300 / 39_000),
        ),
    )


def _build_patch_rows() -> tuple[Row, ...]:
    patch = Request("PATCH", f"{APPS}/app-{{object}}", _PATCH, JSON_PATCH)
    apply = Request("PATCH", _APPLY, _APPLIED, APPLY)
    return (
        Requests("JSON PATCH", patch, connections=16, aim=of_get_ceiling(0.15)),
        Requests("server-side apply", apply, connections=16, aim=of_get_ceiling(0.08)),
    )


def _build_watch_rows(scale: Scale) -> tuple[Row, ...]:
    """With many watches, delays are measured with one team per watch: everything would be a million events a second,
    which such a machine can neither send nor read."""
    pace, fewest = scale.changes_per_second, min(scale.audiences)
    return (
        *(Throughput(size, at_least(EVENTS_PER_SECOND)) for size in scale.audiences),
        *(Delay(size, pace, by_team=size > fewest, aim=at_most(DELAY_MS)) for size in scale.audiences),
    )
