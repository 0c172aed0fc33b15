"""The key of the first administrator: created at the first start, and replaced on request (`client/admin_reset.py`)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.bootstrap import ADMIN_KEY, ensure_admin, reset_admin
from fairlead.client.admin_kubeconfig import KUBECONFIG_NAME, read_key, write_admin_kubeconfig
from fairlead.client.admin_reset import IF_EXPIRED, claim_request, finish_request
from fairlead.core.clock import Clock
from fairlead.core.errors import Unauthorized
from fairlead.core.files import FileProblem
from fairlead.core.objects import get_path
from fairlead.core.waiting import background_task
from fairlead.domain.key_lifetime import temporary_until
from fairlead.features.auth import Auth
from fairlead.features.contract import Services
from fairlead.registry.codec import decode
from fairlead.storage.contract import StorageError, Store
from fairlead.storage.view.view import View

POLL_SECONDS = 1.0
BAD_REQUEST = "the request for a new key of the administrator cannot be used"
NOT_REPLACED = "the administrator's key was not replaced; request it again"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """`url` and `ca_file` are for the kubeconfig of the administrator in `folder`."""

    store: Store
    view: View
    auth: Auth
    clock: Clock
    api_group: str
    folder: Path
    url: str
    ca_file: Path | None

    @staticmethod
    def build(services: Services, ca_file: Path | None) -> "AdminAccess":
        """`ca_file` is the file with the CA of the server."""
        return AdminAccess(
            store=services.store,
            view=services.registry.view,
            auth=services.auth,
            clock=services.registry.clock,
            api_group=services.api_group,
            folder=services.settings.data,
            url=services.base_url,
            ca_file=ca_file,
        )

    async def start(self, is_first: bool) -> tuple[str | None, bool]:
        """Creates the first key, or replaces it if that was requested. Returns the new key, and whether it replaces an
        earlier one. The caller writes the kubeconfig: only the first process of a server has one."""
        key = await ensure_admin(self.store, self.view, self.auth.pepper, self.api_group, self.clock)
        if not is_first:
            return key, False
        mode = self._claim_at_start()
        is_replaced = mode is not None and key is None and (mode != IF_EXPIRED or self.is_expired())
        if is_replaced:
            key = await self._reset()
        if mode is not None:
            self._finish()
        return key, is_replaced

    def _claim_at_start(self) -> str | None:
        """A request that is no file must not keep the server from starting."""
        try:
            return claim_request(self.folder, after_crash=True)
        except FileProblem as error:
            log.error(BAD_REQUEST, why=str(error))
            return None

    def _finish(self) -> None:
        try:
            finish_request(self.folder)
        except FileProblem as error:
            log.error("the request for a new key of the administrator cannot be removed", why=str(error))

    def is_expired(self) -> bool:
        """Whether the first key exists and has expired, or is about to be marked as expired."""
        entry = self.view.get((self.api_group, ACCESS_KEYS, "", ADMIN_KEY))
        key = decode(entry) if entry is not None else {}
        until = temporary_until(key) if key else None
        if until is None or get_path(key, "status.expired"):
            return until is not None
        return until <= self.clock.now() and not self.auth.other_admin_access(ADMIN_KEY)

    def is_stored_key_rejected(self) -> bool:
        """Whether the kubeconfig of the administrator has a key that does not authenticate: it was revoked, say."""
        try:
            key = read_key(self.folder / KUBECONFIG_NAME)
            if key is not None:
                self.auth.access_keys.authenticate_token(key)
        except Unauthorized:
            return True
        except FileProblem:
            pass  # reported when the file is written
        return False

    @asynccontextmanager
    async def serving_requests(self) -> AsyncIterator[None]:
        """Serves requests while the context is open."""
        async with background_task(self._serve_requests()):
            yield

    async def _serve_requests(self) -> None:
        """Replaces the first key whenever that is requested, and writes the kubeconfig. Runs until it is cancelled."""
        reported = ""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                mode = claim_request(self.folder)
            except FileProblem as error:
                if str(error) != reported:  # once, not every second
                    log.error(BAD_REQUEST, why=str(error))
                reported = str(error)
                continue
            reported = ""
            if mode is not None:
                await self._serve_request(mode)

    async def _serve_request(self, mode: str) -> None:
        try:
            if mode != IF_EXPIRED or self.is_expired():
                key = await self._reset()
                write_admin_kubeconfig(self.folder / KUBECONFIG_NAME, self.url, self.ca_file, key)
        except (StorageError, FileProblem, OSError) as error:
            log.error(NOT_REPLACED, why=str(error))
        except Exception:
            log.error(NOT_REPLACED, exc_info=True)  # the next request must be served
        finally:
            self._finish()

    async def _reset(self) -> str:
        key = await reset_admin(self.store, self.view, self.auth.pepper, self.api_group, self.clock)
        log.warning("the administrator's key was replaced, as requested on this machine", key=ADMIN_KEY)
        return key
