"""Runs the OpenID provider `oidc-provider-mock` with TLS on loopback, for tests: `python -m … SETTINGS`, in JSON.

It prints its issuer when it listens, and ends when its standard input does.
"""

import json
import sys
import threading
from datetime import timedelta

from oidc_provider_mock import app
from werkzeug.serving import make_server


def main() -> None:
    settings = json.loads(sys.argv[1])
    provider = app(
        issue_refresh_token=settings["refreshTokens"],
        access_token_max_age=timedelta(seconds=settings["tokenSeconds"]),
    )
    cert_file, key_file = settings["certificate"]
    server = make_server("127.0.0.1", 0, provider, threaded=True, ssl_context=(cert_file, key_file))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"issuer": f"https://localhost:{server.server_port}"}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
