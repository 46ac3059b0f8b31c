"""The files of a published version, known once."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
from dataclasses import dataclass

from starlane.data import units


@dataclass(frozen=True)
class File:
    """A file of a tree: its path below the tree's root, with '/', and its length."""

    path: str
    bytes: int


class Tree:
    """A version of a data set, as a directory of a mount: `…/public/NAME/VERSION`, or a symbolic link to it.

    Its list of files comes, in this order, from this host's cache (a published version never changes), from the site by
    `starlane dataset files`, where `STARLANE_DIR` (or `site`) names it and the command is there, or from a walk of the mount.

    Args:
        root: the directory.
        site: directory of the site, as in `starlane --dir`.
        cache: where lists are kept; by default `$XDG_CACHE_HOME/starlane/trees`.

    Raises:
        NotADirectoryError: `root` is none.
        ValueError: it is not a published version; what lies in a volume may change under its readers.
    """

    def __init__(self, root: str | os.PathLike[str], *, site: str | os.PathLike[str] | None = None,
                 cache: str | os.PathLike[str] | None = None):
        self.root = pathlib.Path(root).expanduser().resolve()
        if not self.root.is_dir():
            raise NotADirectoryError(f"{root} is no directory; give that of a published version, as …/public/books/2024-06")
        if self.root.parent.parent.name != "public" and not _is_read_only(self.root):
            raise ValueError(f"{self.root} is not a published version; publish it with `starlane dataset publish` first")
        self._site = os.fspath(site) if site is not None else os.environ.get("STARLANE_DIR")
        home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        self._cache = pathlib.Path(cache) if cache is not None else home / "starlane" / "trees"
        self._files: list[File] | None = None

    @property
    def name(self) -> str:
        """NAME/VERSION."""
        return f"{self.root.parent.name}/{self.root.name}"

    @property
    def version(self) -> str:
        """What tells this version from every other, on every host: its name, and the inode number and time of its root. A
        version that was deleted and published again under its old name is another one."""
        top = self.root.stat()
        return f"{self.name}@{top.st_ino:x}.{top.st_mtime_ns:x}"

    def entries(self) -> list[File]:
        """Every regular file, sorted by path."""
        if self._files is None:
            self._files = self._cached() or self._keep(self._from_site() or self._walk())
        return self._files

    def files(self, pattern: str = "*") -> units.Units:
        """Units of one file each. `pattern`: as in a shell, matched against the whole path; `*` takes '/' too."""
        return units.whole_files(self.root, self.version, self._matching(pattern))

    def tar_samples(self, pattern: str = "*.tar") -> units.Units:
        """Units of one sample each: the members of a tar shard whose names agree up to the first dot of their last part, as
        WebDataset has it. Reads the headers of every shard once; their places are kept in the cache."""
        return units.tar_samples(self.root, self.version, self._matching(pattern), self._cache)

    def row_groups(self, pattern: str = "*.parquet") -> units.Units:
        """Units of one row group of a parquet file each. Reads the footer of every file; needs pyarrow."""
        return units.row_groups(self.root, self.version, self._matching(pattern))

    def _matching(self, pattern: str) -> list[tuple[str, int]]:
        found = [(file.path, file.bytes) for file in self.entries() if fnmatch.fnmatchcase(file.path, pattern)]
        if not found:
            raise FileNotFoundError(f"no file of {self.name} matches {pattern!r}; it has {len(self.entries())} files")
        return found

    def _cached(self) -> list[File] | None:
        try:
            kept = json.loads(self._cache_file().read_text())
            return [File(path, length) for path, length in kept["files"]] if kept["version"] == self.version else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _keep(self, files: list[File]) -> list[File]:
        write_atomically(self._cache_file(), {"version": self.version, "files": [(f.path, f.bytes) for f in files]})
        return files

    def _cache_file(self) -> pathlib.Path:
        return self._cache / f"{hashlib.sha256(self.version.encode()).hexdigest()[:32]}.json"

    def _from_site(self) -> list[File] | None:
        """None where the site cannot be asked, or has no such version: the mount may be of another one."""
        command = os.environ.get("STARLANE_BINARY") or shutil.which("starlane")
        if not self._site or not command:
            return None
        words = [command, "--dir", self._site, "--json", "dataset"]
        name = [self.root.parent.name, self.root.name]
        shown = subprocess.run([*words, "show", *name], capture_output=True, text=True, check=False)
        if shown.returncode != 0 or json.loads(shown.stdout)["view"] != self.root.stat().st_ino >> 40:
            return None
        listed = subprocess.run([*words, "files", *name], capture_output=True, text=True, check=False)
        if listed.returncode != 0:
            return None
        return sorted((File(one["path"], one["bytes"]) for one in json.loads(listed.stdout)), key=lambda file: file.path)

    def _walk(self) -> list[File]:
        files: list[File] = []
        queue = [""]
        while queue:
            directory = queue.pop()
            with os.scandir(self.root / directory) as entries:
                for entry in entries:
                    path = f"{directory}/{entry.name}" if directory else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        files.append(File(path, entry.stat(follow_symlinks=False).st_size))
        return sorted(files, key=lambda file: file.path)


def write_atomically(path: pathlib.Path, value: object) -> None:
    """JSON, whole or not at all. A cache that cannot be written is none: the work goes on without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(value))
        draft.replace(path)
    except OSError:
        pass


def _is_read_only(path: pathlib.Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
