"""`load`: a checkpoint of torch.save, read into its final place by many requests at once.

torch's own code unpickles (weights-only unless told otherwise) and rebuilds tensors; it asks a _Records object, in place of
its zip reader, for storages. Those are views of one arena into which the file's bytes are landing meanwhile, so unpickling
and reading overlap and no byte is copied twice. Where torch's writer puts data is computed, and checked against the file's
own headers when they have landed."""

from __future__ import annotations

import collections.abc
import ctypes
import os
import pickle
from typing import Any

import torch
from torch import _weights_only_unpickler, serialization

from starlane import devices
from starlane.torch import _device, _zip
from starlane.torch._arena import Arena
from starlane.torch._format import FormatError
from starlane.torch._source import Ends, Source, open_source
from starlane.torch._transfer import THREADS, Chunk, Transfer, cut
from starlane.torch.report import Report, reporting

MapLocation = Any  # as torch.load: a device, a callable, a table of locations, or None
_serialization: Any = serialization  # which has no types
_PAGE = 4096
_MOST_ALIGNMENT = 1 << 20
_HEADER_GAP, _HEADER_RUN = 1 << 16, 1 << 20  # local headers nearer to each other are read together, up to so much


class Checkpoint:
    """An open file of torch.save: its directory, and where its storages lie. OSError, FormatError."""

    def __init__(self, path: str | os.PathLike[str]):
        self.source: Source = open_source(path)
        try:
            self.ends = Ends(self.source)
            self.directory = _zip.Directory(self.ends)
            if "constants.pkl" in self.directory.records:
                raise FormatError(f"{self.source.name} is a TorchScript archive: torch.jit.load reads it")
            if "data.pkl" not in self.directory.records:
                raise FormatError(f"{self.source.name} is no checkpoint of torch.save: it has no data.pkl")
            self.alignment = self._alignment()
            self.storages = {name: record for name, record in self.directory.records.items() if name.startswith("data/")}
            self._range()
        except BaseException:
            self.source.close()
            raise

    def _alignment(self) -> int:
        if ".storage_alignment" not in self.directory.records:
            return 64
        text = self.directory.read(".storage_alignment")
        value = int(text) if text.isdigit() else 0
        if not 0 < value <= _MOST_ALIGNMENT:
            raise FormatError(f"{self.source.name} is damaged: its storages would be aligned to {text[:20]!r}")
        return value

    def _range(self) -> None:
        """begin, end: of all storages with their headers, begin at a page so that alignment in memory is that in the file."""
        headers = [record.header_at for record in self.storages.values()]
        self.first = min(headers, default=0)
        self.begin = self.first // _PAGE * _PAGE
        self.end = max((self.directory.end_of(record) for record in self.storages.values()), default=self.begin)

    def computed(self, name: str) -> int:
        """Where the storage's data begins if torch's writer wrote the file."""
        record = self.record(name)
        at = record.data_at(self.alignment)
        return at if at + record.size <= self.directory.end_of(record) else -1

    def record(self, name: str) -> _zip.Record:
        try:
            return self.directory.records[name]
        except KeyError:
            raise FormatError(f"{self.source.name} is damaged: it has no record {name[:80]}") from None

    def exact(self, threads: int = THREADS) -> dict[str, int]:
        """Where every storage's data begins, by the local headers: some small reads."""
        chunks: list[Chunk] = []
        headers: list[tuple[str, _zip.Record, memoryview]] = []
        run: list[tuple[str, _zip.Record]] = []

        def flush() -> None:
            begin = run[0][1].header_at
            memory = bytearray(run[-1][1].header_at + _zip.LOCAL.size - begin)
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            chunks.append(Chunk(self.source, begin, [(address, len(memory))], memory))
            headers.extend((name, record, memoryview(memory)[record.header_at - begin:]) for name, record in run)
            run.clear()

        for name, record in self.storages.items():
            if run and (record.header_at - run[-1][1].header_at > _HEADER_GAP or
                        record.header_at - run[0][1].header_at > _HEADER_RUN):
                flush()
            run.append((name, record))
        if run:
            flush()
        with Transfer(chunks, threads) as transfer:
            transfer.wait()
        return {name: self.placed(record, header) for name, record, header in headers}

    def placed(self, record: _zip.Record, header: memoryview) -> int:
        """Where its data begins, by its local header. FormatError: not inside its own part of the file."""
        at = self.directory.data_after(record, header)
        if at + record.size > self.directory.end_of(record):
            raise FormatError(f"{self.source.name} is damaged: the record {record.name[:80]!r} overlaps what follows it")
        return at

    def close(self) -> None:
        self.source.close()


class Records:
    """What torch.serialization._load asks its zip reader for. storage: gives the memory of a storage, uint8 of its size."""

    def __init__(self, checkpoint: Checkpoint, storage: collections.abc.Callable[[str, int], torch.Tensor]):
        self._checkpoint, self._storage = checkpoint, storage

    def has_record(self, name: str) -> bool:
        return name in self._checkpoint.directory.records

    def get_record(self, name: str) -> bytes:
        self._checkpoint.record(name)
        return self._checkpoint.directory.read(name)

    def get_all_records(self) -> list[str]:
        return list(self._checkpoint.directory.records)

    def get_record_offset(self, name: str) -> int:
        return self._checkpoint.computed(name)

    def get_record_header_offset(self, name: str) -> int:
        return self._checkpoint.record(name).header_at

    def get_record_offset_no_read(self, header_at: int, name: str, size: int, alignment: int) -> int:
        full = self._checkpoint.directory.folder + name.encode()
        return _zip.Record(full, size, header_at, 0).data_at(alignment)

    def serialization_id(self) -> str:
        return ""

    def get_storage_from_record(self, name: str, count: int, _kind: object) -> torch.Tensor:
        record = self._checkpoint.record(name)
        if not 0 <= count <= record.size:
            raise FormatError(f"{self._checkpoint.source.name} is damaged: the storage {name} has {record.size} bytes, {count} "
                              "are asked for")
        return self._storage(name, count)


def unpickle(checkpoint: Checkpoint, storage: collections.abc.Callable[[str, int], torch.Tensor], map_location: MapLocation,
             weights_only: bool) -> Any:
    """torch's own rebuilding. pickle.UnpicklingError: the file asks for more than tensors and plain values."""
    module: Any = _weights_only_unpickler if weights_only else pickle
    try:
        return _serialization._load(Records(checkpoint, storage), map_location, module, weights_only=weights_only,
                                         encoding="utf-8")
    except pickle.UnpicklingError as failure:
        if not weights_only:
            raise FormatError(f"{checkpoint.source.name} cannot be unpickled: {failure}") from failure
        raise pickle.UnpicklingError(f"{checkpoint.source.name}: {failure}. It holds more than tensors and plain values; if you "
                                     "trust who made it, torch.serialization.safe_globals allows single classes, and "
                                     "weights_only=False runs whatever code it holds") from None
    except (FormatError, MemoryError, OSError, RuntimeError):
        raise  # RuntimeError: torch's own sentence: no such device, a view beyond its storage
    except Exception as failure:
        raise FormatError(f"{checkpoint.source.name} is damaged: its data.pkl cannot be read "
                          f"({type(failure).__name__}: {failure})") from failure


def _is_cpu(map_location: MapLocation) -> bool:
    return isinstance(map_location, (str, torch.device)) and torch.device(map_location).type == "cpu"


def _target(map_location: MapLocation) -> torch.device | devices.Fake | None:
    """A device to load to without a copy by the CPU, or None: by way of the host."""
    if isinstance(map_location, devices.Fake):
        return map_location
    if isinstance(map_location, (str, torch.device)):
        device = torch.device(map_location)
        return device if _device.direct(device) else None
    return None


def load(path: str | os.PathLike[str], map_location: MapLocation = None, *, weights_only: bool = True,
         threads: int = THREADS) -> Any:
    """What torch.load(path, map_location, weights_only=weights_only) answers, at the speed of the storage.

    path: a file, or `starlane:///volumes/…` for one of the site in STARLANE_DIR without a mount. Tensors own their memory.
    threads: reads in flight, each of up to 8 MiB. A CUDA or HIP device as map_location is loaded through pinned memory.
    Errors: OSError; FormatError (truncated, damaged, or no zip checkpoint: torch.load reads those of torch before 1.6);
    pickle.UnpicklingError (more than tensors, and weights_only); MemoryError; RuntimeError of torch (no such device)."""
    with reporting("load", os.fspath(path)) as report:
        with report.phase("open"):
            checkpoint = Checkpoint(path)
        try:
            target = _target(map_location)
            if isinstance(map_location, (str, torch.device)) and torch.device(map_location).type == "meta":
                return unpickle(checkpoint, lambda _, count: torch.empty(count, dtype=torch.uint8), map_location, weights_only)
            if target is not None:
                return _load_to_device(checkpoint, target, weights_only, threads, report)
            return _load_to_host(checkpoint, map_location, weights_only, threads, report)
        finally:
            checkpoint.close()


class _Landing:
    """Storages as views of an arena that is being filled."""

    def __init__(self, checkpoint: Checkpoint, transfer: Transfer, arena: Arena):
        self._checkpoint, self._transfer, self._arena = checkpoint, transfer, arena
        self._given: dict[str, int] = {}
        self._exact = False
        swapped = checkpoint.directory.records.get("byteorder")
        self._touched = swapped is not None and checkpoint.directory.read("byteorder") != b"little"

    def header(self, record: _zip.Record) -> memoryview:
        return self._arena.bytes(record.header_at - self._checkpoint.begin, _zip.LOCAL.size)

    def storage(self, name: str, count: int) -> torch.Tensor:
        record = self._checkpoint.record(name)
        at = self._checkpoint.computed(name)
        if self._exact or at < 0:
            end = record.header_at + _zip.LOCAL.size
            self._transfer.wait_range(self._checkpoint.source, record.header_at, end)
            at = self._checkpoint.placed(record, self.header(record))
        self._given[name] = at
        if self._touched:  # torch swaps its bytes at once
            self._transfer.wait_range(self._checkpoint.source, at, at + count)
        return self._arena.tensor(at - self._checkpoint.begin, count)

    def wait_storage(self, storage: torch.UntypedStorage) -> None:
        begin = storage.data_ptr() - self._arena.address + self._checkpoint.begin
        self._transfer.wait_range(self._checkpoint.source, begin, begin + storage.nbytes())

    def all_right(self) -> bool:
        """After everything has landed: the headers say what was computed. Otherwise everything has to be done again, by
        the headers."""
        for name, at in self._given.items():
            record = self._checkpoint.record(name)
            if self._checkpoint.directory.data_after(record, self.header(record)) != at:
                self._exact = True
                self._given.clear()
                return False
        return True

    @property
    def count(self) -> int:
        return len(self._given)


def _load_to_host(checkpoint: Checkpoint, map_location: MapLocation, weights_only: bool, threads: int, report: Report) -> Any:
    length = checkpoint.end - checkpoint.begin
    with report.phase("memory"):
        arena = Arena(length)
    skipped = checkpoint.first - checkpoint.begin
    chunks = cut(checkpoint.source, checkpoint.first, arena.address + skipped, length - skipped, arena) if length else []
    with Transfer(chunks, threads) as transfer:
        landing = _Landing(checkpoint, transfer, arena)
        restore = _serialization._get_restore_location(map_location)

        def restored(storage: torch.UntypedStorage, location: str) -> Any:
            if map_location is None and location == "cpu":
                return storage
            landing.wait_storage(storage)
            return restore(storage, location)

        where = map_location if _is_cpu(map_location) else restored
        with report.phase("unpickle"):
            result = unpickle(checkpoint, landing.storage, where, weights_only)
        with report.phase("read"):
            transfer.wait()
        with report.phase("check"):
            right = landing.all_right()
        if not right:
            result = unpickle(checkpoint, landing.storage, where, weights_only)
            if not landing.all_right():
                raise FormatError(f"{checkpoint.source.name} changed while it was read")
        report.bytes = sum(record.size for record in checkpoint.storages.values())
        report.tensors = landing.count
        return result


def _load_to_device(checkpoint: Checkpoint, target: torch.device | devices.Fake, weights_only: bool, threads: int,
                    report: Report) -> Any:
    with report.phase("directory"):
        places = checkpoint.exact(threads)
    with report.phase("memory"):
        place = _device.DevicePlace(target)
        memory = {name: place.empty(record.size) for name, record in checkpoint.storages.items()}
    ranges = [(places[name], memory[name]) for name in checkpoint.storages]
    with place.transfer(checkpoint.source, ranges, threads) as transfer:
        with report.phase("unpickle"):
            result = unpickle(checkpoint, lambda name, count: memory[name][:count] if count < len(memory[name]) else memory[name],
                              lambda storage, _: storage, weights_only)
        with report.phase("read"):
            transfer.wait()
            place.synchronize()
    report.bytes = sum(record.size for record in checkpoint.storages.values())
    report.tensors = len(memory)
    return result
