"""What training data is handed out by: whole files, samples of tar shards, row groups of parquet files. A unit is known by
the byte ranges that it is made of, so that it can be read ahead, in any order, before anybody asks for it."""

from __future__ import annotations

import hashlib
import json
import pathlib
import tarfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

INDEX_READERS = 16


@dataclass(frozen=True)
class Part:
    """Bytes [offset, offset + length) of the file `path`, below the tree's root. `name`: what they are of the unit: the
    extension of a member of a tar sample, else the empty string."""

    path: str
    offset: int
    length: int
    name: str = ""


@dataclass(frozen=True)
class Unit:
    """One thing handed out. `key` names it within the version."""

    key: str
    parts: tuple[Part, ...]


class Units(Sequence[Unit]):
    """The units of a version, in the order of their paths, and what their bytes become.

    `decode(unit, pieces)`: `pieces` has the bytes of each part of the unit; what it answers is what a data set hands out.
    """

    def __init__(self, root: pathlib.Path, version: str, units: list[Unit],
                 decode: Callable[[Unit, list[bytes]], Any]):
        self.root, self.version, self.decode = root, version, decode
        self._units = units

    def __len__(self) -> int:
        return len(self._units)

    def __getitem__(self, index: Any) -> Any:
        return self._units[index]

    def map(self, function: Callable[[Any], Any]) -> Units:
        """The same units; what each becomes goes through `function` as well, on
        the threads that read ahead. For spawned workers it has to be picklable."""
        return Units(self.root, self.version, self._units, _Then(self.decode, function))


@dataclass(frozen=True)
class _Then:
    first: Callable[[Unit, list[bytes]], Any]
    second: Callable[[Any], Any]

    def __call__(self, unit: Unit, pieces: list[bytes]) -> Any:
        return self.second(self.first(unit, pieces))


def whole_files(root: pathlib.Path, version: str, files: list[tuple[str, int]]) -> Units:
    """Each handed out as (path below the root, bytes)."""
    return Units(root, version, [Unit(path, (Part(path, 0, length),)) for path, length in files], _as_file)


def tar_samples(root: pathlib.Path, version: str, shards: list[tuple[str, int]], cache: pathlib.Path) -> Units:
    """Each handed out as {"__key__": key, "__url__": shard, extension: bytes, …}, as WebDataset does.

    Raises:
        ValueError: a shard is compressed, or no tar file; its name is in the text.
    """
    with ThreadPoolExecutor(INDEX_READERS) as pool:
        indexes = pool.map(lambda shard: _index_of_shard(root, version, shard[0], cache), shards)
        return Units(root, version, [unit for index in indexes for unit in index], _as_sample)


def row_groups(root: pathlib.Path, version: str, files: list[tuple[str, int]]) -> Units:
    """Each handed out as a `pyarrow.Table` of one row group.

    Raises:
        ValueError: a file is no parquet file; its name is in the text.
    """
    import pyarrow
    import pyarrow.parquet as parquet

    def groups_of(file: tuple[str, int]) -> list[Unit]:
        try:
            with parquet.ParquetFile(root / file[0]) as opened:
                count = opened.metadata.num_row_groups
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{root / file[0]} is no parquet file: {error}") from error
        return [Unit(f"{file[0]}#{number}", ()) for number in range(count)]

    with ThreadPoolExecutor(INDEX_READERS) as pool:
        found = pool.map(groups_of, files)
        return Units(root, version, [unit for units in found for unit in units], _RowGroup(root))


def _as_file(unit: Unit, pieces: list[bytes]) -> tuple[str, bytes]:
    return unit.key, pieces[0]


def _as_sample(unit: Unit, pieces: list[bytes]) -> dict[str, Any]:
    members = {part.name: piece for part, piece in zip(unit.parts, pieces, strict=True)}
    return {"__key__": unit.key.partition("#")[2], "__url__": unit.parts[0].path, **members}


@dataclass(frozen=True)
class _RowGroup:
    """Reads by pyarrow itself, which knows which bytes a row group is made of; several threads do it at once."""

    root: pathlib.Path

    def __call__(self, unit: Unit, pieces: list[bytes]) -> Any:
        import pyarrow.parquet as parquet

        path, _, number = unit.key.rpartition("#")
        with parquet.ParquetFile(self.root / path, pre_buffer=True) as opened:
            return opened.read_row_group(int(number), use_threads=False)


def _index_of_shard(root: pathlib.Path, version: str, path: str, cache: pathlib.Path) -> list[Unit]:
    from starlane.data.tree import write_atomically

    kept_at = cache / "tar" / f"{hashlib.sha256(f'{version} {path}'.encode()).hexdigest()[:32]}.json"
    try:
        kept = json.loads(kept_at.read_text())
        if kept["version"] == version and kept["path"] == path:
            return _samples_of(path, kept["members"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    members = _members_of(root / path)
    write_atomically(kept_at, {"version": version, "path": path, "members": members})
    return _samples_of(path, members)


def _members_of(shard: pathlib.Path) -> list[tuple[str, int, int]]:
    """Name, offset and length of every regular member: reads headers, and skips what lies between."""
    try:
        with tarfile.open(shard, "r:") as opened:
            return [(member.name, member.offset_data, member.size) for member in opened if member.isreg()]
    except tarfile.TarError as error:
        raise ValueError(f"{shard} is not an uncompressed tar file ({error}); samples are read from plain tar only") from error


def _samples_of(path: str, members: Sequence[Sequence[Any]]) -> list[Unit]:
    """Neighbours of one key make a sample."""
    samples: list[tuple[str, list[Part]]] = []
    for name, offset, length in members:
        directory, slash, last = name.rpartition("/")
        stem, dot, extension = last.partition(".")
        key = f"{directory}{slash}{stem}"
        if not stem or not dot:
            continue  # as WebDataset: a member without an extension is none of a sample
        if not samples or samples[-1][0] != key:
            samples.append((key, []))
        samples[-1][1].append(Part(path, offset, length, extension.lower()))
    return [Unit(f"{path}#{key}", tuple(parts)) for key, parts in samples]
