"""`fairlead trust`: which tokens of other systems are exchanged for access keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.access.scope_flags import build_scope, describe_scope
from fairlead.cli.access.trust_config import add_rule, read_trust, remove_rule
from fairlead.cli.access.trust_rules import (
    GITHUB_CLAIMS,
    GITLAB_CLAIMS,
    claims_from_token,
    parse_claims,
    resolve_cluster_account,
    resolve_principal,
)
from fairlead.cli.ui.completion import SCOPE_COMPLETERS, complete_names
from fairlead.cli.ui.durations import format_duration, parse_duration
from fairlead.cli.ui.flags import ContextFlag, OutputFlag, options_from
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import Output, print_data, print_note, print_table
from fairlead.cli.ui.session import UsageError, open_session
from fairlead.client import Client
from fairlead.core.files import read_file
from fairlead.core.objects import Object, name_of

KEYS = "ownedaccesskeys"
RULE_LABEL = "service.sh/trust-rule"
GITHUB_URL, GITLAB_URL = "https://token.actions.githubusercontent.com", "https://gitlab.com"
DEFAULT_TTL = 900
SCOPE_PANEL = "Scope: what keys may be used for; at least one is required"

group = create_group("Trust CI systems and clusters: their tokens are exchanged for access keys.")


def _flag(flag: str, help: str, metavar: str, panel: str | None = None) -> typer.models.OptionInfo:
    completer = SCOPE_COMPLETERS.get(flag) if panel == SCOPE_PANEL else None
    option: typer.models.OptionInfo = typer.Option(
        flag, help=help, metavar=metavar, show_default=False, rich_help_panel=panel, autocompletion=completer
    )
    return option


NameArgument = Annotated[str, typer.Argument(help="Name of the rule.")]
ClaimFlag = Annotated[
    list[str] | None, _flag("--claim", "Claim that a token must have, with exactly this value. Repeatable.", "N=V")
]
TokenFlag = Annotated[
    Path | None, _flag("--from-token", "File with a token of a job, to fill in its ids; - for stdin.", "FILE")
]
PullRequestsFlag = Annotated[
    bool, typer.Option("--allow-pull-requests", help="Also trust runs for pull requests and merge requests.")
]
CaFlag = Annotated[Path | None, _flag("--ca-file", "PEM file with the CA of the issuer's certificate.", "FILE")]


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """What a key may do."""

    principal: Annotated[
        str, _flag("--as", "Principal of the keys: user/NAME, team/NAME or serviceaccount/NAMESPACE/NAME.", "P")
    ]
    ttl: Annotated[
        int | None,
        typer.Option(
            "--ttl", help="Maximum lifetime of a key, up to 1h.", parser=parse_duration, metavar="T", show_default="15m"
        ),
    ] = None
    project: Annotated[
        list[str] | None, _flag("--project", "A project with all its objects; * for all. Repeatable.", "P", SCOPE_PANEL)
    ] = None
    space: Annotated[list[str] | None, _flag("--space", "A space of a project. Repeatable.", "P/S", SCOPE_PANEL)] = None
    virtual_cluster: Annotated[
        list[str] | None, _flag("--virtual-cluster", "A virtual cluster of a project. Repeatable.", "P/V", SCOPE_PANEL)
    ] = None
    cluster: Annotated[
        list[str] | None, _flag("--cluster", "A connected cluster; * for all. Repeatable.", "C", SCOPE_PANEL)
    ] = None
    allow_cli: Annotated[
        bool,
        typer.Option("--allow-cli", help="Also the read requests of command-line tools.", rich_help_panel=SCOPE_PANEL),
    ] = False
    scope_file: Annotated[
        Path | None, _flag("--scope-file", "YAML or JSON file with the whole scope.", "FILE", SCOPE_PANEL)
    ] = None
    context: ContextFlag = None

    def build(self, client: Client) -> Object:
        """The fields of a rule for the principal, the scope and the lifetime."""
        entries: dict[str, Sequence[str]] = {
            "projects": self.project or (),
            "spaces": self.space or (),
            "virtualClusters": self.virtual_cluster or (),
            "clusters": self.cluster or (),
        }
        scope = build_scope(entries, self.allow_cli, self.scope_file)
        if scope is None:
            raise UsageError("set what the keys may be used for, such as --project or --scope-file")
        ttl = {"maxTTLSeconds": self.ttl} if self.ttl else {}
        return {**resolve_principal(client, self.principal), "scope": scope, **ttl}


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Which jobs of a repository are trusted."""

    ref: Annotated[str | None, _flag("--ref", "Branch or tag, as in the claim ref.", "REF")] = None
    environment: Annotated[str | None, _flag("--environment", "Environment of the job.", "NAME")] = None
    claim: ClaimFlag = None
    from_token: TokenFlag = None
    allow_pull_requests: PullRequestsFlag = False
    ca_file: CaFlag = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GithubOptions:
    name: NameArgument
    result: ResultOptions
    repository_id: Annotated[
        str | None, _flag("--repository-id", "Id of the repository, as in the claim repository_id.", "ID")
    ] = None
    jobs: JobOptions
    url: Annotated[str, typer.Option("--url", help="Issuer of another GitHub.", metavar="URL")] = GITHUB_URL


@dataclass(frozen=True, slots=True, kw_only=True)
class GitlabOptions:
    name: NameArgument
    result: ResultOptions
    project_id: Annotated[str | None, _flag("--project-id", "Id of the project, as in the claim project_id.", "ID")] = (
        None
    )
    jobs: JobOptions
    url: Annotated[str, typer.Option("--url", help="URL of another GitLab.", metavar="URL")] = GITLAB_URL


@dataclass(frozen=True, slots=True)
class IssuerOptions:
    name: NameArgument
    result: ResultOptions
    url: Annotated[str, _flag("--url", "Issuer, exactly as in the claim iss.", "URL")]
    claim: ClaimFlag = None
    allow_pull_requests: PullRequestsFlag = False
    ca_file: CaFlag = None
    allow_loopback: Annotated[
        bool, typer.Option("--allow-loopback", help="Allow an issuer on the server's own machine.")
    ] = False


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    cluster_name: Annotated[
        str, typer.Argument(help="Name of the connected cluster.", autocompletion=complete_names("clusters"))
    ]
    result: ResultOptions
    namespace: Annotated[str, _flag("--namespace", "Namespace of the service account in the cluster.", "N")]
    service_account: Annotated[str, _flag("--service-account", "Service account in the cluster.", "S")]
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the rule.", show_default="CLUSTER-NAMESPACE-ACCOUNT")
    ] = None
    allow_recreated: Annotated[
        bool, typer.Option("--allow-recreated", help="Also trust a later service account of the same name.")
    ] = False


@group.command("github")
@options_from(GithubOptions)
def github(options: GithubOptions) -> None:
    """Trust jobs of a GitHub repository, by its id."""
    _trust_jobs(options, options.repository_id, GITHUB_CLAIMS)


@group.command("gitlab")
@options_from(GitlabOptions)
def gitlab(options: GitlabOptions) -> None:
    """Trust jobs of a GitLab project, by its id."""
    _trust_jobs(options, options.project_id, GITLAB_CLAIMS)


def _trust_jobs(options: GithubOptions | GitlabOptions, repository: str | None, names: Sequence[str]) -> None:
    """`names` are the claims that a token fills in; the first one is the id of the repository."""
    url, jobs = options.url, options.jobs
    with open_session(options.result.context) as session:
        flags = {names[0]: repository, "ref": jobs.ref, "environment": jobs.environment}
        claims = {name: value for name, value in flags.items() if value}
        if jobs.from_token is not None:
            issuer, found = claims_from_token(jobs.from_token, names)
            if issuer != url:
                raise UsageError(f"the token is from the issuer {issuer or 'without a name'}; set it with --url")
            claims = {**found, **claims}
        elif names[0] not in claims:
            raise UsageError(f"set --{names[0].replace('_', '-')}, or --from-token with a token of a job")
        claims |= parse_claims(jobs.claim or ())
        source = {"issuer": url, "claims": claims, **_ca(jobs.ca_file), **_pull_requests(jobs)}
        _save(session.client, {"name": options.name, **source, **options.result.build(session.client)})


@group.command("issuer")
@options_from(IssuerOptions)
def issuer(options: IssuerOptions) -> None:
    """Trust tokens of any OpenID issuer with chosen claims."""
    with open_session(options.result.context) as session:
        claims = parse_claims(options.claim or ())
        if not claims:
            raise UsageError("set at least one --claim, or every token of the issuer would be accepted")
        source = {"issuer": options.url, "claims": claims, **_ca(options.ca_file), **_pull_requests(options)}
        if options.allow_loopback:
            source["allowLoopback"] = True
        _save(session.client, {"name": options.name, **source, **options.result.build(session.client)})


@group.command("cluster")
@options_from(ClusterOptions)
def cluster(options: ClusterOptions) -> None:
    """Trust a service account of a connected cluster."""
    with open_session(options.result.context) as session:
        name = options.name or f"{options.cluster_name}-{options.namespace}-{options.service_account}"
        source = resolve_cluster_account(
            session.client,
            options.cluster_name,
            options.namespace,
            options.service_account,
            pin=not options.allow_recreated,
        )
        _save(session.client, {"name": name, **source, **options.result.build(session.client)})
        print_note(f"send the field cluster={options.cluster_name} with the token")


@group.command("list")
def list_rules(context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """List the rules, and show the audience that tokens must have."""
    with open_session(context) as session:
        trust = read_trust(session.client)
        if output is not Output.TABLE:
            print_data(trust, output)
            return
        rows = [_row(rule) for rule in trust.get("rules") or ()]
        headers = ("NAME", "FROM", "CLAIMS", "AS", "TTL", "SCOPE")
        print_table(headers, rows, "no rules; add one with `fairlead trust github`, `gitlab`, `cluster` or `issuer`")
        if trust.get("audience"):
            print_note(f"tokens must have the audience {trust['audience']}")


@group.command("remove")
def remove(
    name: NameArgument,
    context: ContextFlag = None,
) -> None:
    """Remove a rule, and revoke the keys that it has issued."""
    with open_session(context) as session:
        remove_rule(session.client, name)
        issued = [name_of(each) for each in session.client.list(KEYS, labels=f"{RULE_LABEL}={name}")]
        for key in issued:
            session.client.delete(KEYS, key)
        print_note(f"removed the rule {name}, and revoked {len(issued)} key{'' if len(issued) == 1 else 's'}")


def _save(client: Client, rule: Object) -> None:
    audience = add_rule(client, rule)
    print_note(f"added the rule {rule['name']}; request tokens with the audience {audience}")


def _ca(file: Path | None) -> Object:
    if file is None:
        return {}
    content = read_file(file)
    if content is None:
        raise UsageError(f"{file}: no such file; set a PEM file with the CA of the issuer")
    return {"ca": content.decode(errors="replace")}


def _pull_requests(options: JobOptions | IssuerOptions) -> Object:
    return {"allowPullRequests": True} if options.allow_pull_requests else {}


def _row(rule: Any) -> Sequence[str]:
    account = f"{rule.get('namespace')}/{rule.get('serviceAccountName')}"
    claims = ", ".join(f"{name}={value}" for name, value in (rule.get("claims") or {}).items())
    principal = next((f"{kind}/{rule[kind]}" for kind in ("user", "team", "serviceAccount") if rule.get(kind)), "")
    return (
        str(rule.get("name")),
        f"cluster {rule['cluster']}" if rule.get("cluster") else str(rule.get("issuer")),
        account if rule.get("cluster") else claims,
        principal.lower() if principal.startswith("serviceAccount") else principal,
        format_duration(rule.get("maxTTLSeconds") or DEFAULT_TTL),
        "; ".join(describe_scope(rule.get("scope"), principal)),
    )
