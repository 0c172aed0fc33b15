"""Every route, verb and subresource of the server with every shape of scope, checked against matrix.md (T-1).

The routes come from the catalog, the expected decisions from the file. A route without a row fails, and so does a row
that no route needs.
"""

from dataclasses import replace

import pytest

from fairlead.authz.scope import ScopeNaming, inside_gateway, overlaps, within_scope
from fairlead.core.scope import Scope
from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP, Action, Catalog, Kind, Sensitivity
from fairlead.server.auth.stages import PUBLIC_PATHS, is_public
from fairlead.server.discovery.documents import build_documents
from tests.authz.scope.matrix import ALLOW, DENY, FILTERED, Table, read_table
from tests.authz.scope.requests import ADA, PREFIX, MatrixRequest, all_requests
from tests.harness.calls import call

REQUIRED_KINDS = (
    # Kinds in the table and in scopes, for a catalog without them.
    Kind("SpaceInstance", "spaceinstances", True, {}, "A space.", sensitivity=Sensitivity.NORMAL),
    Kind(
        "VirtualClusterInstance",
        "virtualclusterinstances",
        True,
        {},
        "A virtual cluster.",
        sensitivity=Sensitivity.NORMAL,
    ),
)

CATALOG = Catalog(
    (*KINDS, *(kind for kind in REQUIRED_KINDS if Catalog(KINDS).find(kind.group, "v1", kind.plural) is None))
)
NAMES = ScopeNaming.from_catalog(CATALOG, MANAGEMENT_GROUP, PREFIX)
REQUESTS = tuple(all_requests(CATALOG, build_documents(CATALOG), PUBLIC_PATHS))
TABLE = read_table()

check_scope = within_scope(NAMES)
overlaps_scope = overlaps(NAMES)
check_gateway = inside_gateway(NAMES)


def decide(request: MatrixRequest, scope: Scope | None) -> str:
    """The decision about a request, in the notation of the table."""
    user, target = replace(ADA, scope=scope), request.target
    if request.inner is not None:
        return ALLOW if check_gateway(user, target, request.inner) is None else DENY
    if not target.resource and is_public(call(target=target)):
        return ALLOW  # public, not authorized
    if check_scope(user, target) is None:
        return ALLOW
    return FILTERED if overlaps_scope(user, target) else DENY


def find_disagreements(table: Table, column: str) -> list[str]:
    disagreements, scope = [], table.scopes[column]
    for request in REQUESTS:
        expected, actual = table.rows[table.find_row(request.row, request.verb)][column], decide(request, scope)
        if expected != actual:
            disagreements.append(
                f"{request.row}, {request.verb}: the table says {expected}, the server {actual}: {request}"
            )
    return disagreements


@pytest.mark.parametrize("column", TABLE.scopes)
def test_t1_every_request_gets_the_decision_in_the_table(column: str) -> None:
    disagreements = find_disagreements(TABLE, column)
    assert not disagreements, f"{len(disagreements)} of {len(REQUESTS)}; the first: {disagreements[0]}"


def test_t1_every_request_has_a_row_and_every_row_a_request() -> None:
    used_rows = {TABLE.find_row(request.row, request.verb) for request in REQUESTS}
    assert sorted(TABLE.rows.keys() - used_rows) == []


def test_t1_the_matrix_covers_the_whole_api(capsys: pytest.CaptureFixture[str]) -> None:
    cells = len(set(REQUESTS)) * len(TABLE.scopes)
    with capsys.disabled():
        print(f"\nscope matrix: {len(set(REQUESTS))} requests x {len(TABLE.scopes)} scopes = {cells} decisions")
    assert len(set(REQUESTS)) == len(REQUESTS)
    assert cells > 50_000


def test_t1_the_requests_cover_every_kind_with_all_subresources() -> None:
    requested = {(each.target.group, each.target.resource, each.target.subresource) for each in REQUESTS}
    declared = {
        (kind.group, kind.plural, subresource)
        for kind in KINDS
        for subresource in ("", *kind.subresources, *(action.name for action in kind.actions))
    }
    assert declared <= requested


def test_a_new_kind_is_covered_automatically() -> None:
    actions = (Action("turn", ("create",)),)
    kind = Kind(
        "Thing",
        "things",
        False,
        {},
        "A thing.",
        status_subresource=True,
        actions=actions,
        sensitivity=Sensitivity.NORMAL,
    )
    requested = {each.target.subresource for each in all_requests(Catalog((kind,)), build_documents(CATALOG), ())}
    assert {"", "status", "turn"} <= requested


def test_a_request_without_a_row_raises() -> None:
    with pytest.raises(LookupError, match="no decision about fly: project `web`"):
        Table({}, {("project `web`", "get"): {}}).find_row("project `web`", "fly")


def test_a_wrong_cell_is_reported() -> None:
    row = TABLE.find_row("another project", "get")
    changed = Table(TABLE.scopes, TABLE.rows | {row: TABLE.rows[row] | {"D": ALLOW}})
    assert find_disagreements(changed, "D")


def test_the_table_has_three_values_and_no_others() -> None:
    assert {cell for cells in TABLE.rows.values() for cell in cells.values()} == {ALLOW, DENY, FILTERED}
    assert all(cells.keys() == TABLE.scopes.keys() for cells in TABLE.rows.values())
