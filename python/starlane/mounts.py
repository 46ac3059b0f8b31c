"""Which directory is a Starlane mount: where `starlane://` paths begin."""

from __future__ import annotations

import os
import pathlib


def find(given: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """The mount's directory: the one given, else `STARLANE_MOUNT`, else the only one of this host.

    Raises:
        FileNotFoundError: nothing is mounted, several are, or what was given is none.
    """
    named = given if given is not None else os.environ.get("STARLANE_MOUNT")
    if named:
        path = pathlib.Path(named).expanduser().absolute()
        if not (path / "volumes").is_dir():
            raise FileNotFoundError(f"{path} is not a Starlane mount: it has no volumes/; `starlane up --mount` makes one")
        return path
    mounted = of_this_host()
    if not mounted:
        raise FileNotFoundError("no Starlane is mounted on this host; start one with `starlane up --dir DIR --mount DIR`")
    if len(mounted) > 1:
        raise FileNotFoundError(f"{len(mounted)} mounts are on this host ({', '.join(map(str, mounted))}); "
                                "name one by STARLANE_MOUNT")
    return mounted[0]


def of_this_host() -> list[pathlib.Path]:
    """Every mount of Starlane, without the parts of one that `--bind` shows elsewhere."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        if after.split()[0] == "fuse.starlane" and root == "/":
            found.append(pathlib.Path(place.encode().decode("unicode_escape")))
    return found
