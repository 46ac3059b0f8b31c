"""`load_file`: safetensors, whole files at a time, every tensor a view of one arena a file (or memory of a device)."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import os
from typing import Any

import torch

from starlane import devices
from starlane.torch import _device
from starlane.torch._arena import Arena
from starlane.torch._format import FormatError
from starlane.torch._safetensors import Header, Tensor, paths_of
from starlane.torch._source import Ends, Source, open_source
from starlane.torch._transfer import THREADS, Chunk, Transfer, cut
from starlane.torch.report import Report, reporting

Paths = str | os.PathLike[str] | collections.abc.Iterable[str | os.PathLike[str]]


@dataclasses.dataclass
class Shard:
    source: Source
    header: Header

    @property
    def end(self) -> int:
        return max((tensor.end for tensor in self.header.tensors.values()), default=self.header.begin)


@contextlib.contextmanager
def open_shards(paths: Paths) -> collections.abc.Iterator[list[Shard]]:
    """All of them, checked; FormatError: a name is in two."""
    with contextlib.ExitStack() as stack:
        shards: list[Shard] = []
        seen: dict[str, str] = {}
        for path in paths_of(paths):
            source = open_source(path)
            stack.callback(source.close)
            shard = Shard(source, Header(Ends(source)))
            for name in shard.header.tensors:
                if name in seen:
                    raise FormatError(f"the tensor {name[:80]} is in {seen[name]} and in {source.name}")
                seen[name] = source.name
            shards.append(shard)
        yield shards


def shaped(memory: torch.Tensor, tensor: Tensor) -> torch.Tensor:
    """uint8 memory as what it holds."""
    if tensor.begin == tensor.end:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=memory.device)
    return memory.view(tensor.dtype).view(tensor.shape)


def load_file(paths: Paths, device: str | torch.device | devices.Fake = "cpu", process_group: Any = None, *,
              threads: int = THREADS) -> dict[str, torch.Tensor]:
    """Tensors by name, as safetensors.torch.load_file answers them, at the speed of the storage.

    paths: a file, several, a directory, or an `*.index.json`; also `starlane:///volumes/…`. device: where to; a CUDA or HIP
    device is filled from pinned memory, no CPU of ours touches a byte. process_group: of torch.distributed; its ranks, which
    all call this with the same paths, read a part each and send it to the others, so that the group reads every byte once
    (on one host the mount's node cache sees to that without a group). Tensors own their memory, one piece a file.
    Errors: OSError, FormatError, MemoryError, RuntimeError of torch; in a group all ranks fail if one does."""
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    with reporting("load_file", ", ".join(os.fspath(path) for path in paths)) as report, contextlib.ExitStack() as stack:
        with report.phase("open"):
            shards = stack.enter_context(open_shards(paths))
        report.tensors = sum(len(shard.header.tensors) for shard in shards)
        report.bytes = sum(shard.end - shard.header.begin for shard in shards)
        if not isinstance(device, devices.Fake):
            device = torch.device(device)
        on_host = isinstance(device, torch.device) and device.type == "cpu"
        if process_group is not None:
            from starlane.torch._group import load_shards

            found = load_shards(shards, process_group, threads, report)
        elif on_host or (isinstance(device, torch.device) and not _device.direct(device)):
            found = _to_host(shards, threads, report)
        else:
            return _to_device(shards, device, threads, report)
        if on_host:
            return found
        assert isinstance(device, torch.device)
        with report.phase("to device"):
            return {name: tensor.to(device) for name, tensor in found.items()}


class HostShard:
    """A shard's memory: its tensors' bytes as they lie in the file, the first of them at a page."""

    def __init__(self, shard: Shard):
        self.shard = shard
        self.length = shard.end - shard.header.begin
        self._arena = Arena(self.length)

    def chunks(self, begin: int = 0, end: int | None = None) -> list[Chunk]:
        """For a range of the memory."""
        end = self.length if end is None else end
        return cut(self.shard.source, self.shard.header.begin + begin, self._arena.address + begin, end - begin, self._arena)

    def bytes(self) -> torch.Tensor:
        return self._arena.tensor(0, self.length)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Once everything has landed."""
        return dict(self._views())

    def tensors_as_they_land(self, transfer: Transfer) -> collections.abc.Iterator[tuple[str, torch.Tensor]]:
        return self._views(lambda tensor: transfer.wait_range(self.shard.source, tensor.begin, tensor.end))

    def _views(self, wait: collections.abc.Callable[[Tensor], None] | None = None) -> \
            collections.abc.Iterator[tuple[str, torch.Tensor]]:
        """What is not aligned for its type is copied."""
        for name, tensor in self.shard.header.tensors.items():
            if wait is not None:
                wait(tensor)
            memory = self._arena.tensor(tensor.begin - self.shard.header.begin, tensor.end - tensor.begin)
            if memory.data_ptr() % tensor.dtype.itemsize:
                memory = memory.clone()
            yield name, shaped(memory, tensor)


def _to_host(shards: list[Shard], threads: int, report: Report) -> dict[str, torch.Tensor]:
    with report.phase("memory"):
        hosts = [HostShard(shard) for shard in shards]
    with Transfer([chunk for host in hosts for chunk in host.chunks()], threads) as transfer, report.phase("read"):
        transfer.wait()
    with report.phase("tensors"):
        return {name: tensor for host in hosts for name, tensor in host.tensors().items()}


def _to_device(shards: list[Shard], device: torch.device | devices.Fake, threads: int, report: Report) -> \
        dict[str, torch.Tensor]:
    place = _device.DevicePlace(device)
    found: dict[str, torch.Tensor] = {}
    for shard in shards:
        with report.phase("memory"):
            memory = {name: place.empty(tensor.end - tensor.begin) for name, tensor in shard.header.tensors.items()}
        ranges = [(tensor.begin, memory[name]) for name, tensor in shard.header.tensors.items()]
        with place.transfer(shard.source, ranges, threads) as transfer, report.phase("read"):
            transfer.wait()
            place.synchronize()
        found.update((name, shaped(memory[name], tensor)) for name, tensor in shard.header.tensors.items())
    return found
