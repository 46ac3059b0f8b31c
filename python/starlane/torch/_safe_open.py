"""`safe_open`: safetensors' own methods, over reads of exactly what is asked for; and `tensors()`, everything in file order
with read-ahead."""

from __future__ import annotations

import collections.abc
import contextlib
import os
import types
from typing import Any

import torch

from starlane.torch._arena import Arena
from starlane.torch._load_file import HostShard, Shard, open_shards, shaped
from starlane.torch._safetensors import Tensor
from starlane.torch._transfer import THREADS, Transfer, cut


class Slice:
    """A tensor that has not been read: get_shape(), get_dtype(), and indices as of a tensor. With a leading index or range,
    only the rows that it names are read."""

    def __init__(self, of: safe_open, tensor: Tensor):
        self._of, self._tensor = of, tensor

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """As safetensors names it: "F32", "BF16"."""
        return self._tensor.dtype_name

    def __getitem__(self, index: Any) -> torch.Tensor:
        indices = index if isinstance(index, tuple) else (index,)
        first = indices[0] if indices else None
        rows = self._tensor.shape[0] if self._tensor.shape else 0
        if not rows or isinstance(first, torch.Tensor) or not isinstance(first, (int, slice)) or isinstance(first, bool):
            return self._of._finish(self._of._read(self._tensor)[index].clone())
        if isinstance(first, int):
            at = first + rows if first < 0 else first
            if not 0 <= at < rows:
                raise IndexError(f"index {first} is out of the {rows} rows of {self._tensor.name}")
            begin, end, kept = at, at + 1, 0
            return self._of._finish(self._of._read_rows(self._tensor, begin, end)[(kept, *indices[1:])].clone())
        begin, end, step = first.indices(rows)
        if step < 0:
            raise ValueError("a slice of a tensor goes forward")
        return self._of._finish(self._of._read_rows(self._tensor, begin, max(begin, end))[(slice(None, None, step), *indices[1:])]
                                .clone())


class safe_open:  # safetensors' own name
    """As safetensors.safe_open(filename, framework="pt", device="cpu"): a context with keys(), metadata(), offset_keys(),
    get_tensor(), get_slice(); and get_tensors(), tensors(). Tensors own their memory and outlive the context.
    Errors: OSError, FormatError; KeyError, where safetensors has an error of its own, for a name that is not there."""

    def __init__(self, filename: str | os.PathLike[str], framework: str = "pt", device: str | int | torch.device = "cpu",
                 *, threads: int = THREADS):
        if framework not in ("pt", "torch", "pytorch"):
            raise ValueError(f"starlane.torch opens for torch, not for {framework}")
        self._device = torch.device(device)
        self._threads = threads
        self._stack = contextlib.ExitStack()
        shards = self._stack.enter_context(open_shards([filename]))
        self._shard: Shard = shards[0]

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: types.TracebackType | None) -> None:
        self._stack.close()

    def keys(self) -> list[str]:
        """Sorted by name."""
        return sorted(self._shard.header.tensors)

    def offset_keys(self) -> list[str]:
        """In the order of their bytes in the file."""
        return list(self._shard.header.tensors)

    def metadata(self) -> dict[str, str] | None:
        return self._shard.header.metadata

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._finish(self._read(self._named(name)))

    def get_slice(self, name: str) -> Slice:
        return Slice(self, self._named(name))

    def get_tensors(self, names: collections.abc.Iterable[str]) -> dict[str, torch.Tensor]:
        """Several at once: all of them in flight together."""
        wanted = [self._named(name) for name in names]
        arenas = [Arena(one.end - one.begin) for one in wanted]
        pairs = sorted(zip(wanted, arenas, strict=True), key=lambda pair: pair[0].begin)
        chunks = [chunk for one, arena in pairs
                  for chunk in cut(self._shard.source, one.begin, arena.address, one.end - one.begin, arena)]
        with Transfer(chunks, self._threads) as transfer:
            transfer.wait()
        return {one.name: self._finish(shaped(arena.tensor(0, arena.length), one))
                for one, arena in zip(wanted, arenas, strict=True)}

    def tensors(self) -> collections.abc.Iterator[tuple[str, torch.Tensor]]:
        """(name, tensor) in file order, while what follows is being read."""
        host = HostShard(self._shard)
        with Transfer(host.chunks(), self._threads) as transfer:
            for name, view in host.tensors_as_they_land(transfer):
                yield name, self._finish(view)

    def _named(self, name: str) -> Tensor:
        try:
            return self._shard.header.tensors[name]
        except KeyError:
            raise KeyError(f"{self._shard.source.name} has no tensor {name}") from None

    def _read(self, tensor: Tensor) -> torch.Tensor:
        return self._read_bytes(tensor, tensor.begin, tensor.end, tensor.shape)

    def _read_rows(self, tensor: Tensor, begin: int, end: int) -> torch.Tensor:
        row = (tensor.end - tensor.begin) // tensor.shape[0]
        return self._read_bytes(tensor, tensor.begin + begin * row, tensor.begin + end * row, (end - begin, *tensor.shape[1:]))

    def _read_bytes(self, tensor: Tensor, begin: int, end: int, shape: tuple[int, ...]) -> torch.Tensor:
        arena = Arena(end - begin)
        with Transfer(cut(self._shard.source, begin, arena.address, end - begin, arena), self._threads) as transfer:
            transfer.wait()
        return shaped(arena.tensor(0, end - begin), Tensor(tensor.name, tensor.dtype_name, shape, begin, end))

    def _finish(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._device.type == "cpu" else tensor.to(self._device)

