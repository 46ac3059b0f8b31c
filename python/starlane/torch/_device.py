"""Ranges of files to memory of a device: each reading thread has two pinned buffers and a stream; while one buffer is being
copied to the device, the other is being read into. No byte is touched by a CPU of ours."""

from __future__ import annotations

import collections.abc
import threading
from typing import Any

import torch

from starlane import devices
from starlane.torch._source import Segment, Source
from starlane.torch._transfer import Chunk, Transfer

_GAP = 4096
Range = tuple[int, torch.Tensor]  # offset in the file, uint8 memory


def direct(device: torch.device) -> bool:
    """Whether this device is loaded to through its driver."""
    return device.type == "cuda" and torch.cuda.is_available()


class DevicePlace:
    """Memory of one device, and the copies into it. Created and finished by one thread."""

    def __init__(self, device: torch.device | devices.Fake):
        self._device = device
        self._threads = threading.local()
        self._all: list[_Lane] = []
        self._lock = threading.Lock()

    def empty(self, length: int) -> torch.Tensor:
        """uint8 of shape (length,), a storage of its own. RuntimeError: out of device memory."""
        if not isinstance(self._device, devices.Fake):
            return torch.empty(length, dtype=torch.uint8, device=self._device)
        if length == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self._device.owner(self._device.alloc(length), length), dtype=torch.uint8)

    def ops(self) -> devices.DeviceOps:
        if isinstance(self._device, devices.Fake):
            return devices.FakeOps(self._device)
        index = self._device.index if self._device.index is not None else torch.cuda.current_device()
        return devices.gpu_ops(index, hip=torch.version.hip is not None)

    def transfer(self, source: Source, ranges: collections.abc.Sequence[Range], threads: int) -> Transfer:
        """Begins to fill the memory."""
        chunks: list[Chunk] = []
        for offset, memory in sorted(ranges, key=lambda one: one[0]):
            address, length, at = memory.data_ptr(), memory.numel(), 0
            while at < length:
                n = min(length - at, devices.PIN_CHUNK)
                self._add(chunks, source, offset + at, (address + at, n), memory)
                at += n
        if not isinstance(self._device, devices.Fake):
            torch.cuda.synchronize(self._device)  # the memory may have been in use on torch's stream
        return Transfer(chunks, threads, self._read)

    @staticmethod
    def _add(chunks: list[Chunk], source: Source, offset: int, piece: Segment, memory: torch.Tensor) -> None:
        """Small tensors that lie near each other are read together, with what is between them (address 0)."""
        last = chunks[-1] if chunks else None
        gap = offset - (last.offset + last.length) if last else -1
        if last is None or not 0 <= gap <= _GAP or offset + piece[1] - last.offset > devices.PIN_CHUNK:
            chunks.append(Chunk(source, offset, [piece], [memory]))
            return
        last.segments += [(0, gap), piece] if gap else [piece]
        last.keep.append(memory)

    def _read(self, chunk: Chunk) -> None:
        lane: _Lane | None = getattr(self._threads, "lane", None)
        if lane is None:
            lane = self._threads.lane = _Lane(self.ops())
            with self._lock:
                self._all.append(lane)
        lane.move(chunk)

    def synchronize(self) -> None:
        """Everything has arrived, and staging memory is given back. DeviceError: a copy failed."""
        failure: devices.DeviceError | None = None
        with self._lock:
            for lane in self._all:
                try:
                    lane.close()
                except devices.DeviceError as caught:
                    failure = failure or caught
            self._all.clear()
        if failure:
            raise failure


class _Lane:
    """Two pinned buffers and a stream."""

    def __init__(self, ops: devices.DeviceOps):
        self._ops = ops
        self._buffers = [ops.pinned(devices.PIN_CHUNK), ops.pinned(devices.PIN_CHUNK)]
        self._marks: list[Any] = [None, None]
        self._turn = 0

    def move(self, chunk: Chunk) -> None:
        turn, self._turn = self._turn, 1 - self._turn
        if self._marks[turn] is not None:
            mark, self._marks[turn] = self._marks[turn], None
            self._ops.wait(mark)
        buffer = self._buffers[turn]
        chunk.source.read_into(chunk.offset, [(buffer, chunk.length)])
        for address, length in chunk.segments:
            if address:
                self._ops.copy_in(address, buffer, length)
            buffer += length
        self._marks[turn] = self._ops.record()

    def close(self) -> None:
        try:
            self._ops.synchronize()
        finally:
            for buffer in self._buffers:
                self._ops.unpin(buffer)
            self._ops.close()
