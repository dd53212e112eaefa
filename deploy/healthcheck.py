"""Does the service in this container live? Exit code 0 or 1, as Docker's HEALTHCHECK wants it.

Only the standard library, so that it starts in a moment; no proxy is asked, unlike with `urllib.request`. The address
is the one that the service was told: BOTS_HOST (0.0.0.0 reaches this machine too) and BOTS_PORT.
"""

import http.client
import os
import sys

TIMEOUT_S = 3.0


def lives(host: str, port: int, *, timeout_s: float = TIMEOUT_S) -> bool:
    """True when `/livez` answers 200. Connecting and each read may take `timeout_s` seconds."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    # The settings are not imported: that costs a second of processor time at every check.
    environment = os.environ  # noqa: TID251
    host, port = environment.get("BOTS_HOST") or "127.0.0.1", environment.get("BOTS_PORT") or "8080"
    sys.exit(not lives(host, int(port)))
