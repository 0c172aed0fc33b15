"""The HTTPS port of the server: its certificate, and the HTTP server on it."""

from contextlib import AbstractAsyncContextManager
from functools import partial

from fairlead.app.workers.context import WorkerContext
from fairlead.core.crypto.certificates import Certificates, ensure_certificates, load_certificates
from fairlead.core.files import read_file
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.certificate_watch import MAIN_PORT
from fairlead.server.http.http_server import BindOptions, run_http_server
from fairlead.server.metrics.installation import ServedCertificate
from fairlead.settings import Settings


def load_server_certificates(settings: Settings) -> Certificates:
    """The configured certificate, or the generated one, which is renewed if it is time."""
    if settings.tls_cert and settings.tls_key:
        return load_certificates(settings.tls_cert, settings.tls_key, settings.tls_ca)
    return ensure_certificates(settings.data / "tls", settings.certificate_names)


def read_ca_certificate(settings: Settings) -> str:
    """The CA certificate of the server: the configured one, or the generated one. Empty if there is none."""
    file = settings.tls_ca if settings.tls_cert else settings.data / "tls" / "ca.crt"
    content = read_file(file) if file is not None else None
    return content.decode(errors="replace") if content else ""


def serve_https(
    app: AsgiApp,
    settings: Settings,
    port: int,
    certificates: Certificates,
    worker: WorkerContext | None,
    served: ServedCertificate,
) -> AbstractAsyncContextManager[int]:
    """Serves while the context is open. `served` records the certificate that is in use."""
    # One process renews the generated certificate; all of them read it again when it has changed.
    renews = not settings.tls_cert and (worker is None or worker.index == 1)
    options = BindOptions(
        address=settings.listen,
        port=port,
        cert_file=certificates.cert_file,
        key_file=certificates.key_file,
        grace_seconds=settings.shutdown_grace,
        folder=settings.data,
        listener=worker.listener if worker is not None else None,
        renew=partial(load_server_certificates, settings) if renews else None,
        on_certificate=served.record,
        count_reload=partial(served.reloads.count, MAIN_PORT),
    )
    return run_http_server(app, options)
