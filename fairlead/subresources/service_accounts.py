"""The handler of `serviceaccounts/<name>/token`, which `kubectl create token` uses.

`authn/service_accounts.py` issues the token. Each token is logged with the name of its access key, and the request is
audited like every request that returns a credential. Neither log contains the token.
"""

import structlog

from fairlead.authn.service_accounts import ServiceAccountTokenIssuer
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, metadata
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest

TOKEN_PATH: ActionPath = ("", "serviceaccounts", "token")

log = structlog.get_logger(__name__)


def service_account_handlers(tokens: ServiceAccountTokenIssuer) -> dict[ActionPath, ActionHandler]:
    async def create(request: ActionRequest) -> Object:
        """Issues a token. With dryRun, the response has everything but the token."""
        issued = await tokens.issue(
            request.user, request.namespace, request.name, request.body, dry_run=request.dry_run
        )
        if issued.seconds < issued.requested_seconds:
            request.call.warnings.append(
                f"requested expiration of {issued.requested_seconds} seconds shortened to {issued.seconds} seconds"
            )
        status: Object = {"expirationTimestamp": timestamp(issued.expires_at)}
        if issued.value:
            status = {"token": issued.value, **status}
            log.info(
                "a token of a service account was made",
                namespace=request.namespace,
                name=request.name,
                access_key=issued.key,
                user=request.user.name,
                seconds=issued.seconds,
                audit_id=request.call.audit_id,
            )
        account = metadata(issued.account)
        account_meta = {name: account[name] for name in ("name", "namespace", "uid")}
        spec = {"audiences": [tokens.audience], "expirationSeconds": issued.seconds, "boundObjectRef": None}
        return {
            **request.body,
            "metadata": {**metadata(request.body), **account_meta, "creationTimestamp": timestamp(issued.issued_at)},
            "spec": spec,
            "status": status,
        }

    return {TOKEN_PATH: create}
