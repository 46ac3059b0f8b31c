"""`starlane://` for fsspec: `starlane://public/books/2024-06/a.txt`, `starlane://volumes/work/chat.pt`.

Paths begin at the mount, which `starlane.mounts` finds; `fsspec.open(url, mount="/mnt/starlane")` names one. pandas, dask,
datasets, torch.distributed.checkpoint and whatever else takes fsspec's URLs work by the package's entry point alone.
"""

from __future__ import annotations

import io
import os
import pathlib
import secrets
import shutil
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK

from starlane import mounts

PIECE_BYTES = 4 << 20  # a block of the file system: a range is read in pieces of this, many at once
READERS = 16


class StarlaneFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files of a mount under `starlane://`. Any thread; a forked child goes on using its own threads.

    Errors are those of the operating system, with its errno: FileNotFoundError, PermissionError, OSError(EROFS) for writes
    under `public/`, and so on.

    Args:
        mount: the mount's directory; see `starlane.mounts.find`.
    """

    protocol = "starlane"
    root_marker = ""
    local_file = False

    def __init__(self, mount: str | os.PathLike[str] | None = None, **options: Any):
        super().__init__(**options)
        self.mount = mounts.find(mount)

    # Paths

    def local_path(self, path: str) -> pathlib.Path:
        """Where the mount has it."""
        stripped: str = self._strip_protocol(path)
        if ".." in stripped.split("/"):
            raise ValueError(f"{path} has '..' in it; give the path from the mount's root")
        return self.mount / stripped

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return os.fspath(path).removeprefix("starlane://").strip("/")

    # Names

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return self._entry(self._strip_protocol(path), self.local_path(path).stat(), self.local_path(path).is_symlink())

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        stripped = self._strip_protocol(path)
        described = self.info(path)
        if described["type"] != "directory":
            return [described] if detail else [stripped]
        found = []
        with os.scandir(self.local_path(path)) as entries:
            for entry in entries:
                name = f"{stripped}/{entry.name}" if stripped else entry.name
                found.append(self._entry_of(name, entry) if detail else name)
        return found

    def exists(self, path: str, **options: Any) -> bool:
        return self.local_path(path).exists()

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        self.local_path(path).mkdir(parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.local_path(path).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.local_path(path).rmdir()

    def rm_file(self, path: str) -> None:
        self.local_path(path).unlink()

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in path if isinstance(path, list) else [path]:
            found = self.local_path(one)
            if found.is_dir() and not found.is_symlink():
                if not recursive:
                    raise IsADirectoryError(f"{one} is a directory; say recursive=True to remove it with all that is in it")
                shutil.rmtree(found)
            else:
                found.unlink()

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """One rename: seen whole or not at all, on every host. Across volumes it is a copy and a removal."""
        shutil.move(self.local_path(path1), self.local_path(path2))

    rename = mv

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Shares blocks within a mount: no bytes move."""
        source, target = self.local_path(path1), self.local_path(path2)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(source, "rb") as read, open(target, "wb") as written:
            left = os.fstat(read.fileno()).st_size
            while left > 0:
                copied = os.copy_file_range(read.fileno(), written.fileno(), left)
                if copied == 0:
                    return
                left -= copied

    def created(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.local_path(path).stat().st_ctime, timezone.utc)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.local_path(path).stat().st_mtime, timezone.utc)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        with open(self.local_path(path), "wb" if truncate else "ab"):
            os.utime(self.local_path(path))

    def ukey(self, path: str) -> str:
        """Another one whenever the content is another."""
        found = self.local_path(path).stat()
        return f"{found.st_ino:x}.{found.st_mtime_ns:x}.{found.st_size:x}"

    # Bytes

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Bytes [start, end); negative ones count from the end, as in a slice."""
        data: bytes = self._ranges([(path, start, end)])[0]
        return data

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return",
                   **options: Any) -> list[Any]:
        """Many ranges, many in flight, in the order in which the files have them. An error stands in the place of its range,
        or is raised with `on_error="raise"`."""
        starts = [starts] * len(paths) if starts is None or isinstance(starts, int) else list(starts)
        ends = [ends] * len(paths) if ends is None or isinstance(ends, int) else list(ends)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends; give as many of each")
        return self._ranges(list(zip(paths, starts, ends, strict=True)), keep_errors=on_error == "return")

    def get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **options: Any) -> None:
        source = self.local_path(rpath)
        if source.is_dir():
            pathlib.Path(lpath).mkdir(parents=True, exist_ok=True)
        elif outfile is not None or hasattr(lpath, "write"):
            with open(source, "rb") as read:
                shutil.copyfileobj(read, outfile if outfile is not None else lpath, PIECE_BYTES)
        else:
            pathlib.Path(lpath).absolute().parent.mkdir(parents=True, exist_ok=True)
            _copy(source, pathlib.Path(lpath), callback)

    def put_file(self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite",
                 **options: Any) -> None:
        target = self.local_path(rpath)
        if mode == "create" and target.exists():
            raise FileExistsError(f"{rpath} is there already")
        if pathlib.Path(lpath).is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(pathlib.Path(lpath), target, callback)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None,
              **options: Any) -> Any:
        """A file of the operating system, so that `fileno` and `readinto` work. In a transaction, a draft that takes the
        file's name at the end."""
        if not autocommit and mode[0] in "wx":
            return Draft(self.local_path(path))
        return open(self.local_path(path), mode)

    # Inside

    def _entry_of(self, name: str, entry: os.DirEntry[str]) -> dict[str, Any]:
        try:
            return self._entry(name, entry.stat(), entry.is_symlink())
        except FileNotFoundError:  # a link to nothing
            return self._entry(name, entry.stat(follow_symlinks=False), True)

    @staticmethod
    def _entry(name: str, found: os.stat_result, is_link: bool) -> dict[str, Any]:
        kinds: list[tuple[Callable[[int], bool], str]] = [(stat.S_ISDIR, "directory"), (stat.S_ISREG, "file")]
        kind = next((text for holds, text in kinds if holds(found.st_mode)), "other")
        return {"name": name, "size": 0 if kind == "directory" else found.st_size, "type": kind, "islink": is_link,
                "mode": found.st_mode, "uid": found.st_uid, "gid": found.st_gid, "ino": found.st_ino,
                "nlink": found.st_nlink, "mtime": found.st_mtime, "created": found.st_ctime}

    def _ranges(self, wanted: Sequence[tuple[str, int | None, int | None]], keep_errors: bool = False) -> list[Any]:
        results: list[Any] = [None] * len(wanted)
        with ThreadPoolExecutor(READERS) as pool:
            in_order = sorted(range(len(wanted)), key=lambda at: (wanted[at][0], wanted[at][1] or 0))
            running = [(at, pool.submit(self._range, *wanted[at])) for at in in_order]
            for at, future in running:
                error = future.exception()
                if error is not None and not (keep_errors and isinstance(error, Exception)):
                    raise error
                results[at] = error if error is not None else future.result()
        return results

    def _range(self, path: str, start: int | None, end: int | None) -> bytes:
        with open(self.local_path(path), "rb", buffering=0) as file:
            first, last, _ = slice(start, end).indices(os.fstat(file.fileno()).st_size)
            data = bytearray(max(0, last - first))
            view, done = memoryview(data), 0
            while done < len(data):
                got = os.preadv(file.fileno(), [view[done:]], first + done)
                if got == 0:
                    break  # it was cut meanwhile: what there is, as read() does
                done += got
            return bytes(view[:done])


class Draft(io.BufferedWriter):
    """A file under another name until `commit` gives it its own by one rename."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        super().__init__(io.FileIO(self.draft, "w"))

    def commit(self) -> None:
        self.draft.rename(self.path)

    def discard(self) -> None:
        self.close()
        self.draft.unlink(missing_ok=True)


def _copy(source: pathlib.Path, target: pathlib.Path, callback: Any) -> None:
    """In pieces of a block, telling the callback how far it is."""
    with open(source, "rb", buffering=0) as read, open(target, "wb", buffering=0) as written:
        callback.set_size(os.fstat(read.fileno()).st_size)
        while piece := read.read(PIECE_BYTES):
            view = memoryview(piece)
            while view:
                view = view[written.write(view):]
            callback.relative_update(len(piece))
