"""`load_into`: a checkpoint into memory that is there already (a module's parameters), with no second copy of it."""

from __future__ import annotations

import collections.abc
import contextlib
import os
from typing import Any, NamedTuple

import torch

from starlane.torch._arena import Arena
from starlane.torch._format import FormatError
from starlane.torch._load import Checkpoint, unpickle
from starlane.torch._load_file import open_shards, shaped
from starlane.torch._source import SCHEME, Segment, Source
from starlane.torch._transfer import CHUNK, THREADS, Chunk, Transfer
from starlane.torch.report import reporting

_GAP = 4096  # what lies between two tensors in the file is read too, up to so much
_MOST_SEGMENTS = 500


class Loaded(NamedTuple):
    """As load_state_dict answers."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class _Found(NamedTuple):
    """A tensor of the file. view: of memory that is only reserved; place: where its bytes are in the file."""

    view: torch.Tensor
    source: Source
    place: int


class _Plan:
    """Reads into given memory, in file order, small ones together."""

    def __init__(self) -> None:
        self._wanted: list[tuple[Source, int, int, int, Any]] = []
        self._scratch = Arena(_GAP)
        self.bytes = 0

    def add(self, source: Source, offset: int, address: int, length: int, keep: Any) -> None:
        if length:
            self._wanted.append((source, offset, address, length, keep))

    def chunks(self) -> list[Chunk]:
        order: dict[int, int] = {}
        for source, *_ in self._wanted:
            order.setdefault(id(source), len(order))
        self._wanted.sort(key=lambda one: (order[id(one[0])], one[1]))
        chunks: list[Chunk] = []
        seen: set[tuple[int, int, int]] = set()
        for source, offset, address, length, keep in self._wanted:
            if (id(source), offset, address) in seen:
                continue  # a tied tensor
            seen.add((id(source), offset, address))
            self.bytes += length
            at = 0
            while at < length:
                n = min(length - at, CHUNK)
                self._append(chunks, source, offset + at, (address + at, n), keep)
                at += n
        return chunks

    def _append(self, chunks: list[Chunk], source: Source, offset: int, segment: Segment, keep: Any) -> None:
        last = chunks[-1] if chunks else None
        gap = offset - (last.offset + last.length) if last and last.source is source else -1
        if (last is None or not 0 <= gap <= _GAP or len(last.segments) > _MOST_SEGMENTS or
                offset + segment[1] - last.offset > CHUNK):
            chunks.append(Chunk(source, offset, [segment], [keep, self._scratch]))
            return
        last.segments += [(self._scratch.address, gap), segment] if gap else [segment]
        last.keep.append(keep)


def load_into(target: torch.nn.Module | collections.abc.Mapping[str, Any], path: Any, *, strict: bool = True,
              key: str | None = None, threads: int = THREADS) -> Loaded:
    """Fills the tensors of a module, or of a state dict, from a checkpoint: straight into their memory where type and layout
    are those of the file, else by way of one tensor's copy at a time.

    path: a file of torch.save, or what load_file takes. key: of the state dict inside the file, as "model". strict: names
    that are missing, or that nobody asked for, are an error. Types are converted as copy_ does. Errors: RuntimeError (names,
    shapes, meta tensors: nothing was written), OSError, FormatError (the target is partly written), pickle.UnpicklingError."""
    tensors = {name: value for name, value in (target.state_dict() if isinstance(target, torch.nn.Module) else target).items()
               if isinstance(value, torch.Tensor)}
    shown = path if isinstance(path, (str, os.PathLike)) else f"{len(path)} files"
    with reporting("load_into", os.fspath(shown)) as report, contextlib.ExitStack() as stack:
        with report.phase("open"):
            found = _open_tensors(path, key, stack, threads)
        loaded = _compare(tensors, found, strict)
        plan, staged = _Plan(), []
        for name, tensor in tensors.items():
            if name not in found:
                continue
            one = found[name]
            length = one.view.numel() * one.view.element_size()
            if _is_direct(tensor, one.view):
                plan.add(one.source, one.place, tensor.data_ptr(), length, tensor)
            else:
                span = _span(one.view)
                plan.add(one.source, one.place, one.view.data_ptr(), span, one.view)
                staged.append((tensor, one.view))
        with Transfer(plan.chunks(), threads) as transfer, report.phase("read"):
            transfer.wait()
        with report.phase("convert"), torch.no_grad():
            for tensor, view in staged:
                tensor.copy_(view)
        report.bytes, report.tensors = plan.bytes, len(tensors) - len(loaded.missing_keys)
        return loaded


def _span(view: torch.Tensor) -> int:
    """Bytes from the first element to the last, whatever the strides."""
    if view.numel() == 0:
        return 0
    return (sum((size - 1) * stride for size, stride in zip(view.shape, view.stride(), strict=True)) + 1) * view.element_size()


def _is_direct(target: torch.Tensor, view: torch.Tensor) -> bool:
    return (target.device.type == "cpu" and target.dtype == view.dtype and target.layout == torch.strided and
            target.is_contiguous() and view.is_contiguous())


def _compare(tensors: dict[str, torch.Tensor], found: dict[str, _Found], strict: bool) -> Loaded:
    missing = [name for name in tensors if name not in found]
    unexpected = [name for name in found if name not in tensors]
    wrong = []
    if strict and missing:
        wrong.append(f"missing: {', '.join(missing[:5])}" + (f" and {len(missing) - 5} more" if len(missing) > 5 else ""))
    if strict and unexpected:
        wrong.append(f"unexpected: {', '.join(unexpected[:5])}" +
                     (f" and {len(unexpected) - 5} more" if len(unexpected) > 5 else ""))
    for name, tensor in tensors.items():
        if name in found and tensor.shape != found[name].view.shape:
            wrong.append(f"{name} has the shape {tuple(tensor.shape)}, in the file {tuple(found[name].view.shape)}")
        if tensor.device.type == "meta":
            wrong.append(f"{name} is on meta: give the module memory first, by to_empty(device=…)")
    if wrong:
        raise RuntimeError("nothing was loaded: " + "; ".join(wrong[:8]))
    return Loaded(missing, unexpected)


def _open_tensors(path: Any, key: str | None, stack: contextlib.ExitStack, threads: int) -> dict[str, _Found]:
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if not name or name.endswith((".safetensors", ".index.json")) or (not name.startswith(SCHEME) and os.path.isdir(name)):
        return _open_safetensors(path, stack)
    return _open_checkpoint(name, key, stack, threads)


def _open_safetensors(path: Any, stack: contextlib.ExitStack) -> dict[str, _Found]:
    found = {}
    for shard in stack.enter_context(open_shards(path)):
        memory = Arena(shard.end - shard.header.begin, reserve=True)
        for name, tensor in shard.header.tensors.items():
            view = memory.tensor(tensor.begin - shard.header.begin, tensor.end - tensor.begin)
            found[name] = _Found(shaped(view, tensor), shard.source, tensor.begin)
    return found


def _open_checkpoint(path: str, key: str | None, stack: contextlib.ExitStack, threads: int) -> dict[str, _Found]:
    checkpoint = Checkpoint(path)
    stack.callback(checkpoint.close)
    places = checkpoint.exact(threads)
    memory = Arena(checkpoint.end - checkpoint.begin, reserve=True)

    def storage(name: str, count: int) -> torch.Tensor:
        if name not in places:
            raise FormatError(f"{path} is damaged: {name[:80]} is no storage")
        return memory.tensor(places[name] - checkpoint.begin, count)

    if "byteorder" in checkpoint.directory.records and checkpoint.directory.read("byteorder") != b"little":
        raise FormatError(f"{path} was saved by a big-endian machine; load reads it")
    state = unpickle(checkpoint, storage, "cpu", weights_only=True)
    if key is not None:
        state = state[key] if isinstance(state, collections.abc.Mapping) and key in state else None
    if not isinstance(state, collections.abc.Mapping):
        raise FormatError(f"{path} holds no state dict" + (f" under {key!r}" if key else "; if it lies inside, name it by key="))
    found = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        tensor = tensor.detach()
        if tensor.layout != torch.strided:
            raise FormatError(f"{path}: {name} is sparse; load reads it")
        at = tensor.data_ptr() - memory.address + checkpoint.begin if tensor.numel() else 0
        found[name] = _Found(tensor, checkpoint.source, at)
    return found
