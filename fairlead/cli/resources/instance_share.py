"""`share` of `fairlead space` and `vcluster`: lets users and teams use one of them, or ends that."""

from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.field_flags import name_project
from fairlead.cli.ui.flags import ContextFlag, RequiredProjectFlag, flag
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.resource_commands import Resource
from fairlead.cli.ui.session import open_session, project_namespace
from fairlead.client import ApiStatusError
from fairlead.core.objects import Object, get_path

SHARED_VERBS = ["get", "use"]
MAX_ATTEMPTS = 5
"""Another client may change the object between the read and the write."""
CONFLICT = 409


def add_share_command(group: typer.Typer, resource: Resource) -> None:
    noun = resource.noun
    complete = complete_names(resource.plural, project="project")

    def share(
        name: Annotated[str, typer.Argument(help=f"Name of the {noun}.", autocompletion=complete)],
        project: RequiredProjectFlag,
        user: Annotated[
            list[str] | None, flag("--user", help="A user. Can be repeated.", metavar="U", complete="users")
        ] = None,
        team: Annotated[
            list[str] | None, flag("--team", help="A team. Can be repeated.", metavar="T", complete="teams")
        ] = None,
        remove: Annotated[bool, typer.Option("--remove", help="They may not use it any more.")] = False,
        context: ContextFlag = None,
    ) -> None:
        chosen = {"users": user or [], "teams": team or []}
        if not user and not team:
            raise typer.BadParameter("name at least one --user or --team")
        with open_session(context) as session, name_project(session.client, project):
            namespace = project_namespace(session, project)
            for attempt in range(1, MAX_ATTEMPTS + 1):
                instance = session.client.get(resource.plural, name, namespace=namespace)
                rules = get_path(instance, "spec.access") or []
                access = remove_subjects(rules, chosen) if remove else add_subjects(rules, chosen)
                version = get_path(instance, "metadata.resourceVersion")
                change = {"metadata": {"resourceVersion": version}, "spec": {"access": access}}
                try:
                    session.client.patch(resource.plural, name, change, namespace=namespace)
                    break
                except ApiStatusError as problem:
                    if problem.code != CONFLICT or attempt == MAX_ATTEMPTS:
                        raise
        who = ", ".join([*(f"the user {each}" for each in user or ()), *(f"the team {each}" for each in team or ())])
        print_note(f"{who} may {'no longer ' if remove else ''}use the {noun} {name}")

    share.__doc__ = f"""Let users and teams use a {noun}, or end that with --remove.

    They may see it and send requests into it; what they may do there, the roles in the cluster decide. Members of the
    project who may use all of them, and the owner, are not affected.
    """
    group.command("share")(share)


def add_subjects(rules: list[Object], chosen: dict[str, list[str]]) -> list[Object]:
    """The rules of `spec.access`, with these subjects in the one that only lets them use the instance."""
    for index, rule in enumerate(rules):
        if sorted(rule.get("verbs") or ()) == SHARED_VERBS:
            merged = {field: list(dict.fromkeys([*(rule.get(field) or ()), *chosen[field]])) for field in chosen}
            return [*rules[:index], {**rule, **_drop_empty(merged)}, *rules[index + 1 :]]
    return [*rules, {"verbs": SHARED_VERBS, **_drop_empty(chosen)}]


def remove_subjects(rules: list[Object], chosen: dict[str, list[str]]) -> list[Object]:
    """The rules without these subjects. A rule without any subject is dropped."""
    remaining = []
    for rule in rules:
        left = {field: [each for each in rule.get(field) or () if each not in names] for field, names in chosen.items()}
        others = {field: value for field, value in rule.items() if field not in chosen}
        if any(left.values()):
            remaining.append({**others, **_drop_empty(left)})
    return remaining


def _drop_empty(subjects: dict[str, list[str]]) -> dict[str, list[str]]:
    return {field: names for field, names in subjects.items() if names}
