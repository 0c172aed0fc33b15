"""`fairlead apply`: creates or changes objects of any kind with server-side apply."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from fairlead.cli.resources.any_kind import (
    FilesFlag,
    Manifest,
    NamespaceOptions,
    RecursiveFlag,
    object_namespace,
    read_manifests,
    served_resources,
)
from fairlead.cli.ui.flags import ContextFlag, DryRunFlag, ObjectOutputFlag, options_from
from fairlead.cli.ui.output import TABLE, Format, ObjectOutput, build_list, escape_control, print_name, print_value
from fairlead.cli.ui.session import Session, UsageError, exit_with_error, open_session
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.client.client import APPLY_PATCH
from fairlead.client.discovery import ApiResource, find_kind
from fairlead.core.objects import Object, get_path, name_of

FIELD_MANAGER = "fairlead-apply"
UNKNOWN_FIELD = re.compile(r"(\S+): field not declared in schema")
SERVER_FIELDS = ("generation", "managedFields", "resourceVersion")


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    files: FilesFlag = None
    recursive: RecursiveFlag = False
    dry_run: DryRunFlag = False
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields that another client manages.")
    ] = False
    scope: NamespaceOptions = field(default_factory=NamespaceOptions)
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@options_from(ApplyOptions)
def command(options: ApplyOptions) -> None:
    """Create or change the objects in files, with server-side apply.

    All files are read before the first object is sent. If an object is rejected, the others are applied nevertheless,
    and the exit code is 1.
    """
    with open_session(options.context) as session:
        if not options.files:
            raise UsageError("set the files to apply with -f, or -f - for stdin")
        manifests = read_manifests(options.files, options.recursive)
        namespace = options.scope.resolve(session)
        served = served_resources(session)
        applied = [_apply(session, manifest, served, namespace, options) for manifest in manifests]
        found = [each for each in applied if each is not None]
        if not options.output.is_table and options.output.format is not Format.NAME:
            print_value(build_list(found), options.output)
        if len(found) < len(manifests):
            raise typer.Exit(1)


def _apply(
    session: Session, manifest: Manifest, served: list[ApiResource], namespace: str, options: ApplyOptions
) -> Object | None:
    """Applies one object and prints the result. Prints an error and returns None if it is rejected."""
    body = manifest.body
    try:
        resource = find_kind(served, str(body.get("apiVersion")), str(body.get("kind")))
        path = resource.path(name_of(body), object_namespace(resource, body, namespace))
        before = _read(session.client, path)
        after = session.client.send("PATCH", path, body, query=_build_query(options), media_type=APPLY_PATCH)
    except ApiStatusError as problem:
        advice = "; --force-conflicts takes them over" if problem.reason == "Conflict" else ""
        exit_with_error(f"{manifest.origin}: {manifest.label}: {_describe_unknown_fields(problem)}{problem}{advice}")
        return None
    except (ClientError, UsageError) as problem:
        exit_with_error(f"{manifest.origin}: {manifest.label}: {problem}")
        return None
    _print_result(manifest, _describe_change(before, after) + (" (dry run)" if options.dry_run else ""), options.output)
    return after


def _describe_unknown_fields(problem: ApiStatusError) -> str:
    """A line before the message of the server, which is that of Kubernetes; empty if no field is unknown."""
    fields = [each.removeprefix(".") for each in UNKNOWN_FIELD.findall(problem.message)]
    if not fields:
        return ""
    noun = "unknown field" if len(fields) == 1 else "unknown fields"
    return f"{noun} {', '.join(fields)}; check the spelling and the indentation\n"


def _build_query(options: ApplyOptions) -> dict[str, str]:
    query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    if options.force_conflicts:
        query["force"] = "true"
    return query | ({"dryRun": "All"} if options.dry_run else {})


def _read(client: Client, path: str) -> Object | None:
    """The object before the change; empty if the user may not read it, None if it does not exist."""
    try:
        return client.send("GET", path)
    except ApiStatusError as problem:
        if problem.code == 404:
            return None
        if problem.code == 403:
            return {}
        raise


def _describe_change(before: Object | None, after: Object) -> str:
    if before is None:
        return "created"
    if not before:
        return "applied"
    return "unchanged" if _user_content(before) == _user_content(after) else "configured"


def _user_content(obj: Object) -> Any:
    metadata = {name: value for name, value in (get_path(obj, "metadata") or {}).items() if name not in SERVER_FIELDS}
    return obj | {"metadata": metadata}


def _print_result(manifest: Manifest, change: str, output: ObjectOutput) -> None:
    if output.is_table:
        print(escape_control(f"{manifest.label} {change}"))
    elif output.format is Format.NAME:
        print_name(str(manifest.body.get("kind")), name_of(manifest.body))
