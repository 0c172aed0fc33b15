"""The handler of SignOnReview: evaluates claims, or a changed Config, with the rules that sign-ons use.

Nothing is written, and no provider is asked. The claims are those of the requester and are not verified.
"""

from collections.abc import Iterator
from typing import Any

from fairlead.authn.principals import PrincipalDirectory
from fairlead.authn.sign_on_policy import SignOnReason, Verdict, evaluate, group_prefix, stored_facts
from fairlead.authn.sign_on_settings import Connector, SignOnConfig, SignOnSettings, read_sign_on
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.kinds.access.sign_on_review import MAX_LISTED_USERS
from fairlead.kinds.clusters.config import parse_settings
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.signin.sso.identity import Identity, read_identity
from fairlead.signin.sso.reasons import SignOnRefused
from fairlead.signin.sso.users import SignOnUsers, candidate_names


def sign_on_review_handlers(api_group: str, reviews: "SignOnReviews") -> dict[ActionPath, ActionHandler]:
    return {(api_group, "signonreviews", ""): reviews}


class SignOnReviews:
    def __init__(self, settings: SignOnSettings, users: SignOnUsers, principals: PrincipalDirectory) -> None:
        self._settings = settings
        self._users = users
        self._principals = principals

    async def __call__(self, request: ActionRequest) -> Object:
        spec = request.body.get("spec") or {}
        stored = self._settings.get()
        config = _parse_config(spec["config"]) if "config" in spec else stored
        status: Object = {}
        if "claims" in spec:
            connector = _find_connector(config, spec)
            status |= self._review(config, connector, spec["claims"])
        if "config" in spec:
            changes = list(self._changed_users(stored, config))
            status |= {"users": changes[:MAX_LISTED_USERS], "changedUsers": len(changes)}
        body = {**request.body, "spec": {name: value for name, value in spec.items() if name == "connector"}}
        return {**body, "status": status}

    def _review(self, config: SignOnConfig, connector: Connector, claims: Object) -> Object:
        status: Object = {"connector": connector.id, "issuer": connector.issuer}
        compared = config.compared_claims(connector.id)
        try:
            identity = read_identity(connector, claims, None, compared)
            status |= _describe_identity(connector, identity)
            verdict = evaluate(config, connector, identity.facts())
            status["rules"] = _describe_rules(config, connector, verdict)
            self._check_user(connector, identity, verdict, status)
        except SignOnRefused as refused:
            return {**status, "allowed": False, "reason": refused.reason.value, "detail": refused.detail}
        return {**status, "allowed": True, **self._describe_grants(connector, identity, verdict)}

    def _check_user(self, connector: Connector, identity: Identity, verdict: Verdict, status: Object) -> None:
        """Sets who the user is. Raises SignOnRefused for the same reasons as a sign-on."""
        user = self._users.find(identity.issuer, identity.subject)
        status |= {"userExists": user is not None, "resembles": self._users.resembled_user(identity)}
        status["user"] = name_of(user) if user is not None else self._new_name(connector, identity)
        if verdict.refusal is not None:
            raise SignOnRefused(verdict.refusal)
        if user is None and not connector.creates_users:
            raise SignOnRefused(SignOnReason.USER_NOT_FOUND)
        if user is not None and (get_path(user, "spec.disabled") or "deletionTimestamp" in metadata(user)):
            raise SignOnRefused(SignOnReason.USER_DISABLED)

    def _new_name(self, connector: Connector, identity: Identity) -> str:
        names = candidate_names(identity, always_suffix=connector.always_suffix)
        return next((name for name in names if not self._users.is_name_used(name)), names[-1])

    def _describe_grants(self, connector: Connector, identity: Identity, verdict: Verdict) -> Object:
        teams = {name_of(team): team for team in self._principals.list_teams()}
        provided = {f"{group_prefix(connector.id)}{group}" for group in identity.groups}
        by_group = {
            name for name, team in teams.items() if not provided.isdisjoint(get_path(team, "spec.groups") or ())
        }
        return {
            "teams": sorted(by_group | (set(verdict.teams) & teams.keys())),
            "missingTeams": sorted(set(verdict.teams) - teams.keys()),
            "groups": list(verdict.groups),
        }

    def _changed_users(self, before: SignOnConfig, after: SignOnConfig) -> Iterator[Object]:
        """The users of identity providers whose access differs between two Configs."""
        for user in self._users.list_all():
            old = _describe_access(user, before)
            new = _describe_access(user, after)
            if old != new:
                yield {"name": name_of(user), "before": old, "after": new}


def _parse_config(raw: str) -> SignOnConfig:
    settings, problems = parse_settings(raw)
    if problems:
        reasons = "; ".join(each.message.removeprefix("Invalid value: ") for each in problems[:5])
        raise BadRequest(f"spec.config is not a valid Config: {reasons}")
    return read_sign_on(settings)


def _find_connector(config: SignOnConfig, spec: Object) -> Connector:
    id = spec.get("connector") or ""
    issuer = spec["claims"].get("iss")
    found = config.connectors.get(id) if id else config.by_issuer.get(issuer) if isinstance(issuer, str) else None
    if found is None and not id and issuer is None and len(config.connectors) == 1:
        found = next(iter(config.connectors.values()))
    if found is None:
        known = ", ".join(config.connectors) or "none"
        raise BadRequest(f"spec.connector must be the id of a connector in the Config: {known}")
    return found


def _describe_identity(connector: Connector, identity: Identity) -> Object:
    fields: dict[str, Any] = {
        "subject": identity.subject,
        "displayName": identity.display_name,
        "email": identity.email,
        "emailVerified": identity.is_email_verified,
        "ssoGroups": sorted(f"{group_prefix(connector.id)}{group}" for group in identity.groups),
    }
    return {name: value for name, value in fields.items() if value != ""}


def _describe_rules(config: SignOnConfig, connector: Connector, verdict: Verdict) -> list[Object]:
    matched = {rule.id for rule in verdict.rules}
    return [
        {
            "id": rule.id,
            "claim": rule.claim or connector.claims.groups,
            "value": rule.value,
            "matched": rule.id in matched,
            "teams": list(rule.teams),
            "groups": list(rule.groups),
        }
        for rule in config.rules_for(connector.id)
    ]


def _describe_access(user: Object, config: SignOnConfig) -> Object:
    connector = config.by_issuer.get(get_path(user, "spec.issuer") or "")
    if connector is None:
        return {"allowed": False, "reason": SignOnReason.UNKNOWN_CONNECTOR.value}
    verdict = evaluate(config, connector, stored_facts(user, connector))
    if verdict.refusal is not None:
        return {"allowed": False, "reason": verdict.refusal.value}
    return {"allowed": True, "teams": sorted(verdict.teams), "groups": sorted(verdict.groups)}
