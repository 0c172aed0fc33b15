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
from tests.authz.scope.requests import ADA, PREFIX, Asked, every_request
from tests.harness.calls import call

MENTIONED = (
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

CATALOG = Catalog((*KINDS, *(kind for kind in MENTIONED if Catalog(KINDS).find(kind.group, "v1", kind.plural) is None)))
NAMES = ScopeNaming.from_catalog(CATALOG, MANAGEMENT_GROUP, PREFIX)
REQUESTS = tuple(every_request(CATALOG, build_documents(CATALOG), PUBLIC_PATHS))
TABLE = read_table()

within = within_scope(NAMES)
touching = overlaps(NAMES)
through = inside_gateway(NAMES)


def answer(asked: Asked, scope: Scope | None) -> str:
    """The decision about a request, as the table writes it."""
    user, target = replace(ADA, scope=scope), asked.target
    if asked.behind is not None:
        return ALLOW if through(user, target, asked.behind) is None else DENY
    if not target.resource and is_public(call(target=target)):
        return ALLOW  # public, not authorized
    if within(user, target) is None:
        return ALLOW
    return FILTERED if touching(user, target) else DENY


def disagreements(table: Table, column: str) -> list[str]:
    found, scope = [], table.scopes[column]
    for asked in REQUESTS:
        said, got = table.rows[table.row(asked.row, asked.verb)][column], answer(asked, scope)
        if said != got:
            found.append(f"{asked.row}, {asked.verb}: the table says {said}, the server {got}: {asked}")
    return found


@pytest.mark.parametrize("column", TABLE.scopes)
def test_t1_every_request_is_decided_as_the_table_says(column: str) -> None:
    found = disagreements(TABLE, column)
    assert not found, f"{len(found)} of {len(REQUESTS)}; the first: {found[0]}"


def test_t1_every_request_has_a_row_and_every_row_a_request() -> None:
    used = {TABLE.row(asked.row, asked.verb) for asked in REQUESTS}
    assert sorted(TABLE.rows.keys() - used) == []


def test_t1_the_matrix_is_as_large_as_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    cells = len(set(REQUESTS)) * len(TABLE.scopes)
    with capsys.disabled():
        print(f"\nscope matrix: {len(set(REQUESTS))} requests x {len(TABLE.scopes)} scopes = {cells} decisions")
    assert len(set(REQUESTS)) == len(REQUESTS)
    assert cells > 50_000


def test_t1_every_kind_of_the_server_is_asked_about_with_all_of_its_parts() -> None:
    asked = {(each.target.group, each.target.resource, each.target.subresource) for each in REQUESTS}
    declared = {
        (kind.group, kind.plural, part)
        for kind in KINDS
        for part in ("", *kind.subresources, *(action.name for action in kind.actions))
    }
    assert declared <= asked


def test_a_new_kind_is_asked_about_by_itself() -> None:
    actions = (Action("turn", ("create",)),)
    thing = Kind(
        "Thing",
        "things",
        False,
        {},
        "A thing.",
        status_subresource=True,
        actions=actions,
        sensitivity=Sensitivity.NORMAL,
    )
    asked = {each.target.subresource for each in every_request(Catalog((thing,)), build_documents(CATALOG), ())}
    assert {"", "status", "turn"} <= asked


def test_a_request_without_a_row_is_noticed() -> None:
    with pytest.raises(LookupError, match="no decision about fly: project `web`"):
        Table({}, {("project `web`", "get"): {}}).row("project `web`", "fly")


def test_a_wrong_cell_is_noticed() -> None:
    row = TABLE.row("another project", "get")
    wrong = Table(TABLE.scopes, TABLE.rows | {row: TABLE.rows[row] | {"D": ALLOW}})
    assert disagreements(wrong, "D")


def test_the_table_has_three_values_and_no_others() -> None:
    assert {cell for cells in TABLE.rows.values() for cell in cells.values()} == {ALLOW, DENY, FILTERED}
    assert all(cells.keys() == TABLE.scopes.keys() for cells in TABLE.rows.values())
