"""`fairlead sso`: who users of identity providers would be, and what a changed Config would do. Sends SignOnReviews."""

import base64
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.ui.flags import ContextFlag, OutputFlag, flag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import Output, print_data, print_note, print_pairs, print_table
from fairlead.cli.ui.session import UsageError, open_session
from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object

MAX_FILE_BYTES = 1024 * 1024

group = create_group("Try the rules of single sign-on before users do.")


@group.command("test")
def test(
    claims: Annotated[
        str,
        typer.Option(
            "--claims", help="File with claims as JSON or YAML, or with an ID token; - for stdin.", metavar="FILE"
        ),
    ],
    connector: Annotated[
        str | None,
        flag(
            "--connector", help="Id of the connector. By default, the one with the issuer of the claims.", metavar="ID"
        ),
    ] = None,
    config: Annotated[
        Path | None, flag("--config", help="File with settings to use instead of the stored Config.", metavar="FILE")
    ] = None,
    context: ContextFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show who a user with these claims would be, and why.

    The server evaluates the claims with its own rules. Nothing is verified, and nothing is stored. The exit code is 1
    if the user could not sign in.
    """
    with open_session(context) as session:
        spec: Object = {"claims": read_claims(claims)}
        if connector:
            spec["connector"] = connector
        if config is not None:
            spec["config"] = _read_text(str(config))
        status = session.client.create("signonreviews", {"spec": spec}).get("status") or {}
    if output is not Output.TABLE:
        print_data(status, output)
    else:
        _print_review(status)
    if not status.get("allowed"):
        raise typer.Exit(1)


@group.command("preview")
def preview(
    config: Annotated[Path, typer.Argument(help="File with the new settings, as in spec.raw of the Config.")],
    context: ContextFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show which present users would gain or lose access with other settings.

    What the server knows about a user is from its last sign-on or refresh.
    """
    with open_session(context) as session:
        review = session.client.create("signonreviews", {"spec": {"config": _read_text(str(config))}})
    status = review.get("status") or {}
    if output is not Output.TABLE:
        print_data(status, output)
        return
    users = status.get("users") or []
    rows = [(each["name"], _describe_access(each["before"]), _describe_access(each["after"])) for each in users]
    print_table(("USER", "BEFORE", "AFTER"), rows, "no present user is affected")
    if (count := status.get("changedUsers") or 0) > len(users):
        print_note(f"{count - len(users)} more users are affected")


def read_claims(file: str) -> Object:
    """The claims in a file: JSON, YAML, or an ID token, whose signature is not checked."""
    text = _read_text(file).strip()
    parts = text.split(".")
    if len(parts) == 3 and all(part and " " not in part and "\n" not in part for part in parts):
        text = _decode_payload(parts[1])
    try:
        value, _ = yaml.decode(text.encode())
    except (Malformed, UnicodeEncodeError) as error:
        raise UsageError(f"{file} has no claims: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f'{file} must have an object with claims, like {{"sub": "1", "groups": ["staff"]}}')
    return value


def _decode_payload(part: str) -> str:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()
    except ValueError:
        raise UsageError("the file looks like an ID token, but its payload cannot be decoded") from None


def _read_text(file: str) -> str:
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{file} is larger than {MAX_FILE_BYTES} bytes")
    return text


def _print_review(status: Object) -> None:
    allowed = "yes" if status.get("allowed") else f"no: {status.get('reason', '')}"
    detail = f" ({status['detail']})" if status.get("detail") else ""
    is_new = "" if status.get("userExists") else " (would be created)"
    pairs = [
        ("sign-in", f"{allowed}{detail}"),
        ("connector", status.get("connector") or ""),
        ("subject", status.get("subject") or ""),
        ("user", f"{status['user']}{is_new}" if status.get("user") else ""),
        ("looks like", status.get("resembles") or ""),
        ("email", _describe_email(status)),
        ("at provider", ", ".join(status.get("ssoGroups") or ())),
        ("teams", ", ".join(status.get("teams") or ())),
        ("groups", ", ".join(status.get("groups") or ())),
        ("missing teams", ", ".join(status.get("missingTeams") or ())),
    ]
    print_pairs([pair for pair in pairs if pair[1]])
    rules = [_rule_row(each) for each in status.get("rules") or ()]
    print_table(("RULE", "MATCHED", "CONDITION", "GIVES"), rules, "there are no rules for this connector")


def _describe_email(status: Object) -> str:
    email = status.get("email") or ""
    return f"{email} ({'verified' if status.get('emailVerified') else 'not verified'})" if email else ""


def _rule_row(rule: Object) -> Sequence[str]:
    return (
        rule.get("id") or "",
        "yes" if rule.get("matched") else "no",
        f"{rule.get('claim', '')} = {rule.get('value', '')}",
        _describe_grants(rule),
    )


def _describe_grants(value: Any) -> str:
    teams = [f"team {name}" for name in value.get("teams") or ()]
    return ", ".join([*teams, *(f"group {name}" for name in value.get("groups") or ())])


def _describe_access(access: Object) -> str:
    if not access.get("allowed"):
        return f"no: {access.get('reason', '')}"
    return _describe_grants(access) or "signs in, without teams and groups"
