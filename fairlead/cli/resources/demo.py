"""`fairlead demo`: fills a server with a small fleet for looking around, and removes it again.

It uses the public API with the current login, which has to be that of an administrator. Everything that it creates has
a label, and only objects with this label are removed. A second run creates only what is missing. An object of the same
name without the label stops the command before anything is created.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from fairlead.cli.resources.demo_fleet import DEMO_LABEL, STUCK_PROJECT, DemoObject, demo_objects
from fairlead.cli.ui import prompts
from fairlead.cli.ui.flags import ContextFlag, YesFlag
from fairlead.cli.ui.output import print_name, print_note
from fairlead.cli.ui.resource_commands import abandon
from fairlead.cli.ui.session import Session, open_session, project_namespace_prefix
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core.objects import Object, get_path, labels_of, metadata, name_of

IS_DEMO, IS_NOT_DEMO = f"{DEMO_LABEL}=true", f"{DEMO_LABEL}!=true"
REMOVAL_ORDER = (
    # The runner first: the deletion of a running workspace waits for its runner.
    *("runners", "devpodworkspaceinstances", "virtualclusterinstances", "spaceinstances", "configmaps", "projects"),
    *("clusters", "secrets", "apps", "spacetemplates", "devpodworkspacetemplates", "ownedaccesskeys", "teams", "users"),
)
CONTENT = (
    *("devpodworkspaceinstances", "virtualclusterinstances", "spaceinstances", "configmaps", "secrets"),
    *("projectsecrets", "sharedsecrets"),
)
"""What a project may contain."""
CORE = frozenset({"configmaps", "secrets"})
REMOVAL_SECONDS, POLL_SECONDS = 60.0, 0.2
"""How long to wait until a project and its content are deleted."""


def command(
    remove: Annotated[bool, typer.Option("--remove", help="Remove everything that the demo created.")] = False,
    yes: YesFlag = False,
    context: ContextFlag = None,
) -> None:
    """Fill the server with a small fleet for looking around, or remove it again."""
    with open_session(context) as session:
        if remove:
            if not yes:
                prompts.confirm(f"Delete all objects with the label {IS_DEMO}?")
            remove_demo(session.client)
        else:
            create_demo(session)


def create_demo(session: Session) -> None:
    client, prefix = session.client, project_namespace_prefix(session.client)
    missing = _find_missing(client, prefix)
    for each in missing:
        client.send("POST", _path(client, each, prefix, collection=True), _build_body(client, each))
        if each.status:
            _report_status(client, each, prefix)
        print_name(each.kind, each.name)
    if "deletionTimestamp" not in metadata(client.get("projects", STUCK_PROJECT)):
        client.delete("projects", STUCK_PROJECT)
    if missing:
        print_note(f"created {len(missing)} objects; `fairlead demo --remove` removes them")
    else:
        print_note("the demo is complete; nothing to create")


def _find_missing(client: Client, prefix: str) -> list[DemoObject]:
    """The objects that are still to be created. Objects of another origin are never touched: they are listed."""
    missing = []
    foreign = []
    for each in demo_objects():
        found = _read(client, each, prefix)
        if found is None:
            missing.append(each)
        elif labels_of(found).get(DEMO_LABEL) != "true":
            foreign.append(f"{each.kind.lower()}/{each.name}")
    if foreign:
        verb = "exists and is" if len(foreign) == 1 else "exist and are"
        raise ClientError(
            f"{', '.join(foreign)} {verb} not part of the demo; nothing was created: rename what is yours, or use the "
            "demo on another server, like that of `fairlead up --data ./demo --port 9444`"
        )
    return missing


def _read(client: Client, each: DemoObject, prefix: str) -> Object | None:
    try:
        return client.send("GET", _path(client, each, prefix))
    except ApiStatusError as problem:
        if problem.code == 404:
            return None
        raise


def _path(client: Client, each: DemoObject, prefix: str, *, collection: bool = False) -> str:
    namespace = f"{prefix}{each.project}" if each.project else each.namespace
    return _resource_path(client, each.plural, "" if collection else each.name, namespace)


def _resource_path(client: Client, plural: str, name: str, namespace: str) -> str:
    build = client.core_path if plural in CORE else client.path
    return build(plural, *([name] if name else []), namespace=namespace)


def _build_body(client: Client, each: DemoObject) -> Object:
    meta: Object = {"name": each.name, "labels": {DEMO_LABEL: "true"}}
    if each.finalizers:
        meta["finalizers"] = list(each.finalizers)
    version = "v1" if each.is_core else f"{client.group}/v1"
    spec = {} if each.is_core else {"spec": each.spec}
    return {"apiVersion": version, "kind": each.kind, "metadata": meta, **spec, **each.content}


def _report_status(client: Client, each: DemoObject, prefix: str) -> None:
    path = f"{_path(client, each, prefix)}/status"
    client.send("PATCH", path, {"status": each.status}, media_type="application/merge-patch+json")


def remove_demo(client: Client) -> None:
    """Removes all objects with the label. Projects in which others have created something are kept."""
    prefix = project_namespace_prefix(client)
    retained: list[str] = []
    removed = 0
    for plural in REMOVAL_ORDER:
        for obj in _list_objects(client, plural, IS_DEMO):
            foreign = _foreign_objects(client, f"{prefix}{name_of(obj)}") if plural == "projects" else ()
            if foreign:
                retained.append(f"project {name_of(obj)} contains {', '.join(foreign)}")
                continue
            _delete(client, plural, obj)
            print_name(str(obj["kind"]), name_of(obj))
            removed += 1
        if plural == "projects":
            _wait_until_deleted(client, retained=len(retained))
    if retained:
        raise ClientError(
            f"kept what the demo did not create: {'; '.join(retained)}; delete it, and run the command again"
        )
    print_note(f"removed {removed} objects" if removed else "there is no demo on this server; nothing to remove")


def _list_objects(client: Client, plural: str, labels: str, namespace: str = "") -> list[Object]:
    if plural not in CORE:
        kinds = {each.plural: each.kind for each in demo_objects()}
        listed = client.list(plural, namespace=namespace, labels=labels)
        return [{"kind": kinds.get(plural, plural), **each} for each in listed]
    kind = {"configmaps": "ConfigMap", "secrets": "Secret"}[plural]
    page = client.send("GET", _resource_path(client, plural, "", namespace), query={"labelSelector": labels})
    return [{"kind": kind, **each} for each in page.get("items") or ()]


def _foreign_objects(client: Client, namespace: str) -> Sequence[str]:
    """What others have created in the namespace. Objects with an owner go with it."""
    return [
        f"{plural}/{name_of(obj)}"
        for plural in CONTENT
        for obj in _list_objects(client, plural, IS_NOT_DEMO, namespace)
        if not metadata(obj).get("ownerReferences")
    ]


def _delete(client: Client, plural: str, obj: Object) -> None:
    path = _resource_path(client, plural, name_of(obj), get_path(obj, "metadata.namespace") or "")
    try:
        if plural == "configmaps" and metadata(obj).get("finalizers"):
            released = {"metadata": {"finalizers": None}}
            client.send("PATCH", path, released, media_type="application/merge-patch+json")
        if plural == "runners":  # it has no machine on which anything could stay behind
            abandon(client, plural, name_of(obj))
        client.send("DELETE", path)
    except ApiStatusError as problem:
        if problem.code != 404:  # it went with its owner, or was being deleted already
            raise


def _wait_until_deleted(client: Client, retained: int) -> None:
    deadline = time.monotonic() + REMOVAL_SECONDS
    while len(waiting := list(_names(client, "projects"))) > retained:
        if time.monotonic() > deadline:
            raise ClientError(f"the deletion of {', '.join(waiting)} takes long; run the command again later")
        time.sleep(POLL_SECONDS)


def _names(client: Client, plural: str) -> Iterator[str]:
    return (name_of(obj) for obj in client.list(plural, labels=IS_DEMO))
