"""`fairlead delete`: deletes objects of any kind, by name, by label, or those in files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer

from fairlead.cli.resources.any_kind import (
    FilesFlag,
    NamespaceOptions,
    RecursiveFlag,
    Target,
    TargetsArgument,
    object_namespace,
    parse_targets,
    read_manifests,
    served_resources,
)
from fairlead.cli.ui import prompts
from fairlead.cli.ui.describe import text_of
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS
from fairlead.cli.ui.field_flags import name_selector
from fairlead.cli.ui.flags import ContextFlag, DryRunFlag, NoWaitFlag, SelectorFlag, TimeoutFlag, YesFlag, options_from
from fairlead.cli.ui.output import escape_control
from fairlead.cli.ui.resource_commands import join_names
from fairlead.cli.ui.session import Session, UsageError, exit_with_error, open_session
from fairlead.cli.ui.wait import ObjectRef, VerboseFlag, abandoned_messages, failed_conditions, wait_deleted
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.client.discovery import find_kind
from fairlead.core.objects import Object, name_of


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    targets: TargetsArgument = None
    files: FilesFlag = None
    recursive: RecursiveFlag = False
    selector: SelectorFlag = ""
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Succeed if an object does not exist.")
    ] = False
    dry_run: DryRunFlag = False
    yes: YesFlag = False
    no_wait: NoWaitFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
    scope: NamespaceOptions = field(default_factory=NamespaceOptions)
    context: ContextFlag = None


@options_from(DeleteOptions)
def command(options: DeleteOptions) -> None:
    """Delete objects of any kind: by name, by label, or those in files.

    If an object cannot be deleted, the others are deleted nevertheless, and the exit code is 1.
    """
    with open_session(options.context) as session:
        targets = _find_targets(session, options)
        if not targets:
            raise ClientError(f"no object matches the selector {options.selector!r}; nothing was deleted")
        if not options.yes and not options.dry_run:
            prompts.confirm(f"Delete {join_names([each.label for each in targets])}?")
        deleted = [_delete(session.client, each, options) for each in targets]
        if not all(deleted):
            raise typer.Exit(1)


def _find_targets(session: Session, options: DeleteOptions) -> Sequence[Target]:
    namespace = options.scope.resolve(session)
    if bool(options.targets) == bool(options.files):
        raise UsageError("name the objects, like app/nginx, or set files with -f")
    if options.files:
        return _targets_in_files(session, options, namespace)
    targets = parse_targets(session, options.targets or (), namespace)
    if any(each.name for each in targets) == bool(options.selector):
        raise UsageError("set either names or a label selector with -l")
    if not options.selector:
        return targets
    with name_selector(options.selector):
        return [found for each in targets for found in _select(session.client, each, options.selector)]


def _targets_in_files(session: Session, options: DeleteOptions, namespace: str) -> Sequence[Target]:
    """The objects in files, in the reverse order of `apply`."""
    served, targets = served_resources(session), []
    for each in read_manifests(options.files or (), options.recursive):
        resource = find_kind(served, str(each.body.get("apiVersion")), str(each.body.get("kind")))
        targets.append(Target(resource, name_of(each.body), object_namespace(resource, each.body, namespace)))
    return targets[::-1]


def _select(client: Client, target: Target, selector: str) -> list[Target]:
    items = client.send("GET", target.path, query={"labelSelector": selector}).get("items") or ()
    return [Target(target.resource, name_of(each), text_of(each, "metadata.namespace")) for each in items]


def _delete(client: Client, target: Target, options: DeleteOptions) -> bool:
    """Deletes one object and prints the result. Prints an error and returns False if that fails."""
    try:
        found = client.send("GET", target.path)
        client.send("DELETE", target.path, query={"dryRun": "All"} if options.dry_run else None)
        if not options.dry_run and not options.no_wait:
            last = _wait(client, target, found, options.timeout)
            if left := abandoned_messages(last):
                exit_with_error(f"{target.label} is deleted, but not what it has deployed: {'; '.join(left)}")
                return False
    except ApiStatusError as problem:
        if problem.code != 404 or not options.ignore_not_found:
            exit_with_error(f"{target.label}: {problem}")
            return False
    except ClientError as problem:
        exit_with_error(f"{target.label}: {problem}")
        return False
    else:
        state = "deleted (dry run)" if options.dry_run else "being deleted" if options.no_wait else "deleted"
        print(escape_control(f"{target.label} {state}"))
    return True


def _wait(client: Client, target: Target, found: Object, timeout: int) -> Object:
    """Returns the last state that was seen; empty if there was none."""
    if not {"list", "watch"} <= target.resource.verbs:
        return {}
    uid = text_of(found, "metadata.uid")
    version = text_of(found, "metadata.resourceVersion")
    ref = ObjectRef(target.resource.path("", target.namespace), target.name, uid, version)
    return wait_deleted(client, ref, lambda obj: "".join(failed_conditions(obj)[:1]), timeout)
