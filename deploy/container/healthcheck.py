#!/opt/fairlead/bin/python3
"""The health check of the container: succeeds if the server answers /livez. It uses nothing but Python, to start fast.

The connection is to this container itself, so the certificate, which may be of another name, is not verified.
"""

import http.client
import os
import ssl
import sys


def main() -> int:
    port = int(os.environ.get("FAIRLEAD_PORT") or 8443)
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=4, context=context)
    try:
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    except OSError as error:
        print(f"port {port}: {error}")
        return 1
    print(f"/livez: {status}")
    return 0 if status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
