"""The figures of a site's processes on this host: their Prometheus pages, which each serves on a socket in the site's directory."""

from __future__ import annotations

import collections
import http.client
import os
import pathlib
import socket


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str):
        super().__init__("localhost", timeout=2)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(2)
        self.sock.connect(self._path)


def _page(path: pathlib.Path) -> str:
    """Empty: nobody answers there."""
    connection = _UnixConnection(str(path))
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def totals(site: str | os.PathLike[str]) -> dict[str, float]:
    """By name, without labels: the sum over all processes and labels (so of counters and amounts only). Empty: nothing of the
    site runs here. site: its directory, as STARLANE_DIR names it."""
    found: dict[str, float] = collections.defaultdict(float)
    for path in pathlib.Path(site, "run").glob("metrics-*"):
        for line in _page(path).splitlines():
            if line and not line.startswith("#"):
                found[line.split()[0].partition("{")[0]] += float(line.rsplit(maxsplit=1)[-1])
    return dict(found)
