"""The command line. `main` is the console script `fairlead`; `COMMANDS` maps each command to its function or group.

- `server`: commands that start, install or check a server, and those that work on its files and stores
- `access`: login and contexts, access keys, tokens, users, teams, permissions
- `resources`: clusters, projects, instances, apps, runners, kubeconfigs
- `workspaces`: what runs in workspaces: tasks, their progress and logs
- `ui`: shared flags, output, prompts, sessions, waiting

- `examples`: the examples at the end of each help

For a fast start (help, completion, exec credentials for kubectl), a command is imported when it is used, help is plain
text without rich, and commands import heavy modules inside their functions. Only a few may import `fairlead.app`; an
import contract lists them.
"""

import functools
import shlex
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fairlead.cli.examples import EXAMPLES
from fairlead.cli.ui.groups import RUNNING_COMMAND, CommandGroup
from fairlead.cli.ui.streams import run_with_streams


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: its name, `module:attribute` of a function or a `typer.Typer` group, and its line in the help."""

    name: str
    target: str
    summary: str


COMMANDS: tuple[CommandEntry, ...] = (
    CommandEntry("up", "fairlead.cli.server.up:command", "Start a server on this machine."),
    CommandEntry("serve", "fairlead.cli.server.serve:command", "Run the server as a service."),
    CommandEntry("admin", "fairlead.cli.server.admin:group", "Get in again as the administrator, on the server."),
    CommandEntry("agent", "fairlead.cli.server.agent:command", "Run the direct endpoint next to a cluster."),
    CommandEntry("install", "fairlead.cli.server.install:group", "Install the server or the agent as a service."),
    CommandEntry("uninstall", "fairlead.cli.server.install:uninstall", "Remove the installed services."),
    CommandEntry("doctor", "fairlead.cli.server.doctor:command", "Check this machine and its installation."),
    CommandEntry("support-bundle", "fairlead.cli.server.doctor:support_bundle", "Write a file for support."),
    CommandEntry("login", "fairlead.cli.access.login:command", "Log in to a server."),
    CommandEntry("logout", "fairlead.cli.access.context:logout", "Log out, and revoke the key of the login."),
    CommandEntry("whoami", "fairlead.cli.access.whoami:command", "Show your user, groups and key."),
    CommandEntry("context", "fairlead.cli.access.context:group", "List, switch and delete stored logins."),
    CommandEntry("get", "fairlead.cli.resources.get:command", "Print objects of any kind."),
    CommandEntry("apply", "fairlead.cli.resources.apply:command", "Create or change objects from YAML or JSON."),
    CommandEntry("delete", "fairlead.cli.resources.delete:command", "Delete objects of any kind."),
    CommandEntry("kubeconfig", "fairlead.cli.resources.kubeconfig:command", "Write a kubectl context."),
    CommandEntry("cluster", "fairlead.cli.resources.cluster:group", "Connect, check and remove clusters."),
    CommandEntry("project", "fairlead.cli.resources.project:group", "Manage projects and their members."),
    CommandEntry("workspace", "fairlead.cli.resources.workspace:group", "Manage developer workspaces."),
    CommandEntry("vcluster", "fairlead.cli.resources.cluster_instance:vcluster_group", "Manage virtual clusters."),
    CommandEntry(
        "space", "fairlead.cli.resources.cluster_instance:space_group", "Manage spaces: namespaces in clusters."
    ),
    CommandEntry("app", "fairlead.cli.resources.app:group", "Manage apps."),
    CommandEntry("key", "fairlead.cli.access.key:group", "Create, rotate and revoke access keys."),
    CommandEntry("user", "fairlead.cli.access.user:group", "Manage users and passwords."),
    CommandEntry("team", "fairlead.cli.access.team:group", "Manage teams and their members."),
    CommandEntry("trust", "fairlead.cli.access.trust:group", "Trust tokens of CI systems and clusters."),
    CommandEntry("sso", "fairlead.cli.access.sso:group", "Try the rules of single sign-on."),
    CommandEntry("config", "fairlead.cli.access.config:group", "Show and change settings while the server runs."),
    CommandEntry("runner", "fairlead.cli.resources.runner:group", "Manage and run runners, and their keys."),
    CommandEntry("who-can", "fairlead.cli.access.permissions:who_can", "List who may perform an action."),
    CommandEntry("audit", "fairlead.cli.access.audit:group", "Show who did what, and what was denied."),
    CommandEntry("credential", "fairlead.cli.access.token:credential", "Print a key for kubectl, and refresh it."),
    CommandEntry("token", "fairlead.cli.access.token:group", "Print tokens for kubectl and clusters."),
    CommandEntry(
        "encryption-key", "fairlead.cli.server.encryption_keys:group", "Manage the keys for encryption at rest."
    ),
    CommandEntry("backup", "fairlead.cli.server.backup:backup_group", "Back up the store, or verify a backup."),
    CommandEntry("restore", "fairlead.cli.server.backup:restore", "Restore a backup into an empty store."),
    CommandEntry("store", "fairlead.cli.server.backup:store_group", "Copy a store to another one."),
    CommandEntry("export", "fairlead.cli.server.export:group", "Export the kinds for other API servers."),
    CommandEntry("demo", "fairlead.cli.resources.demo:command", "Fill a server with a small fleet to look around."),
    CommandEntry("completion", "fairlead.cli.server.completion:command", "Print a script for shell completion."),
    CommandEntry("version", "fairlead.cli:version", "Show the version."),
)
"""The commands in the order of `--help`."""

KIND_NAMES = {"virtualcluster": "vcluster", "virtualclusters": "vcluster", "accesskey": "key", "accesskeys": "key"}
"""Kinds whose commands have another name."""

HELP_FLAGS = ["-h", "--help"]
CONTEXT_SETTINGS = {"help_option_names": HELP_FLAGS, "max_content_width": 100}


def main() -> None:
    run_with_streams(make_app())


class SectionedCommand(TyperCommand):
    """A command whose help has a section for each group of flags, as rich help has panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            default = "Arguments" if each.param_type_name == "argument" else "Options"
            if record := each.get_help_record(ctx):
                sections.setdefault(getattr(each, "rich_help_panel", None) or default, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class LazyGroup(CommandGroup):
    """Lists the commands with their summaries, and imports a command when it is used."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args == ["--version"]:  # at once: Typer imports pydantic for the flag of the command
            version()
            ctx.exit()
        return super().parse_args(ctx, ["version", *args[1:]] if args[:1] == ["--version"] else args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if not error.message and getattr(error.param, "opts", None) == ["--project"]:  # it is missing
                error.message = "`fairlead project list` lists them."
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args and args[0] not in self.commands and (suggestion := suggest_kind_first(ctx, args)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean '{suggestion}'?")
        name, command, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, command, rest
        loaded = load_command(name)
        RUNNING_COMMAND.set(loaded)  # the group resets it when the command has ended
        return name, loaded, rest


def suggest_kind_first(ctx: Any, args: list[str]) -> str:
    """`fairlead project create x` for `create project x`, the order of kubectl; empty if there is no such command."""
    verb = args[0].lower()
    kind = args[1].lower() if len(args) > 1 else ""
    kinds = {each.name for each in COMMANDS}
    name = next((each for each in (KIND_NAMES.get(kind, kind), kind.removesuffix("s")) if each in kinds), "")
    if not name or not isinstance(group := load_command(name), TyperGroup):
        return ""
    if group.get_command(ctx, verb) is None:
        return ""
    from fairlead.cli.ui.output import escape_control

    return escape_control(shlex.join(["fairlead", name, verb, *args[2:]]))


def make_app() -> typer.Typer:
    """The Typer application, with a placeholder for each command."""
    app = _new_app(LazyGroup)
    for entry in COMMANDS:
        app.command(entry.name, help=entry.summary)(_run_placeholder)
    return app


def _new_app(cls: type[TyperGroup]) -> typer.Typer:
    # No pretty exceptions: they print the values of locals, which may be secrets.
    app = typer.Typer(
        name="fairlead",
        cls=cls,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=CONTEXT_SETTINGS,
    )
    app.callback()(root)
    return app


def _run_placeholder() -> None:
    raise AssertionError("LazyGroup replaces the placeholder")


@functools.cache
def load_command(name: str) -> TyperCommand | TyperGroup:
    """Imports a command, and completes its help."""
    target = next(each.target for each in COMMANDS if each.name == name)
    module, _, attribute = target.partition(":")
    command = getattr(import_module(module), attribute)
    app = _new_app(TyperGroup)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name, cls=SectionedCommand)(command)
    loaded = get_command(app)
    assert isinstance(loaded, TyperGroup)
    found: Any = loaded.commands[name]
    _complete_help(found, name)
    return found  # type: ignore[no-any-return]


def _complete_help(command: Any, path: str) -> None:
    """Adds the examples, and prints arguments in capitals, as the documentation does."""
    for each in command.params:
        if each.param_type_name == "argument" and not each.metavar:
            each.metavar = each.name.upper()
    if examples := EXAMPLES.get(path):
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)
    for name, each in getattr(command, "commands", {}).items():
        _complete_help(each, f"{path} {name}")


def version(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show the version."""
    import json
    import platform

    from fairlead import __version__

    if as_json:
        print(json.dumps({"version": __version__, "python": platform.python_version()}))
    else:
        print(f"fairlead {__version__}")


def root() -> None:
    """A Kubernetes-style management API for clusters, projects, workspaces and apps, in one process.

    Start with `fairlead up`; it prints the next commands. `fairlead COMMAND --help` shows the flags of a command.
    """
