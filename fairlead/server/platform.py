"""The platform's own documents, at the base URL beside the management API."""

import orjson

from fairlead.server.document import Document, variant


def platform_documents(version: str, mount: str) -> dict[str, Document]:
    """What stands at the base URL: where things are, and the version of the platform itself."""
    major, minor, _ = version.split(".", 2)
    about = {"version": f"v{version}", "major": major, "minor": minor}
    places = {"paths": ["/healthz", "/livez", "/readyz", "/version", mount]}
    return {"/": _document(places), "/version": _document(about)}


def _document(value: object) -> Document:
    return Document((variant(orjson.dumps(value)),), negotiated=False)
