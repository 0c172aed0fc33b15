"""`serviceaccounts/<name>/token` over HTTP, which is what `kubectl create token` posts to.

`server/api/actions.py` calls the handler; `authn/service_accounts.py` decides what the token is. Each token made is logged by the
name of its access key, and the request is in the audit log like every one that hands out a credential. The token is in
neither.
"""

import structlog

from fairlead.authn.service_accounts import AccountTokens
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, metadata
from fairlead.server.api.actions import Asked, Handler, Place

PLACE: Place = ("", "serviceaccounts", "token")

log = structlog.get_logger(__name__)


def service_account_handlers(tokens: AccountTokens) -> dict[Place, Handler]:
    async def create(asked: Asked) -> Object:
        """A token. With dryRun, all that would be answered but the token."""
        issued = await tokens.issue(asked.user, asked.namespace, asked.name, asked.body, dry_run=asked.dry_run)
        if issued.seconds < issued.asked_seconds:
            asked.call.warnings.append(
                f"requested expiration of {issued.asked_seconds} seconds shortened to {issued.seconds} seconds"
            )
        status: Object = {"expirationTimestamp": timestamp(issued.expires)}
        if issued.value:
            status = {"token": issued.value, **status}
            log.info(
                "a token of a service account was made",
                namespace=asked.namespace,
                name=asked.name,
                access_key=issued.key,
                user=asked.user.name,
                seconds=issued.seconds,
                audit_id=asked.call.audit_id,
            )
        account = metadata(issued.account)
        about = {name: account[name] for name in ("name", "namespace", "uid")}
        spec = {"audiences": [tokens.audience], "expirationSeconds": issued.seconds, "boundObjectRef": None}
        return {
            **asked.body,
            "metadata": {**metadata(asked.body), **about, "creationTimestamp": timestamp(issued.issued)},
            "spec": spec,
            "status": status,
        }

    return {PLACE: create}
