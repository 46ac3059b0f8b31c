"""How much memory a process may still use."""

from __future__ import annotations

import collections.abc
import contextlib
import pathlib


def available(root: pathlib.Path = pathlib.Path("/")) -> int | None:
    """Bytes: of the machine, or of the control group that has least left (cgroup v2: this process's and those above it). What the
    kernel keeps of files counts as free: it gives way. None: not known. root: where proc and sys are."""
    return min([*_of_machine(root), *_of_groups(root)], default=None)


def _of_machine(root: pathlib.Path) -> collections.abc.Iterator[int]:
    with contextlib.suppress(OSError, ValueError):
        yield _numbers(root / "proc/meminfo")["MemAvailable:"] * 1024


def _of_groups(root: pathlib.Path) -> collections.abc.Iterator[int]:
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                group = pathlib.PurePath(line[3:].lstrip("/"))
                for one in (group, *group.parents):
                    yield from _of_group(root / "sys/fs/cgroup" / one)


def _of_group(group: pathlib.Path) -> collections.abc.Iterator[int]:
    """Nothing: it has no limit, or is not to be seen from here."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        limit, used = ((group / f"memory.{what}").read_text() for what in ("max", "current"))
        statistics = _numbers(group / "memory.stat")
        yield max(0, int(limit) - int(used) + statistics["active_file"] + statistics["inactive_file"])  # "max" is no number


def _numbers(path: pathlib.Path) -> dict[str, int]:
    """Of a file of lines "name number"."""
    return {words[0]: int(words[1]) for words in map(str.split, path.read_text().splitlines())}
