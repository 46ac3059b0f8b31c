"""The header of a safetensors file, checked as the format asks: sorted, without holes or overlaps, nothing outside, shapes
that fit. Files that say otherwise are refused with FormatError."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import os
import pathlib
from typing import Any

import torch

from starlane.torch._format import FormatError
from starlane.torch._source import SCHEME, Ends

_MOST_HEADER = 100_000_000  # as the reference implementation
_INDEX = ".index.json"

_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
          "I8": "int8", "U8": "uint8", "BOOL": "bool", "U16": "uint16", "U32": "uint32", "U64": "uint64",
          "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
          "F8_E5M2FNUZ": "float8_e5m2fnuz", "C64": "complex64"}
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, of) for name, of in _NAMES.items() if hasattr(torch, of)}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """begin, end: of its bytes in the file."""

    name: str
    dtype_name: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def dtype(self) -> torch.dtype:
        """FormatError: this torch has no such type."""
        try:
            return DTYPES[self.dtype_name]
        except KeyError:
            raise FormatError(f"the tensor {self.name} has the type {self.dtype_name}, which torch {torch.__version__} has not"
                              ) from None


_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8, "BOOL": 8, "U16": 16,
         "U32": 32, "U64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FormatError("its header names a tensor twice")
    return found


class Header:
    """tensors: by name, in the order of their bytes; metadata: free text of the writer, or None."""

    def __init__(self, ends: Ends):
        name, length = ends.source.name, ends.source.length
        if length < 8:
            raise FormatError(f"{name} is no safetensors file: it has {length} bytes")
        size = int.from_bytes(ends.read(0, 8), "little")
        if size > _MOST_HEADER or 8 + size > length:
            raise FormatError(f"{name} is no safetensors file, or is truncated: its header would have {size} bytes")
        try:
            fields = json.loads(ends.read(8, size).decode("utf-8"), object_pairs_hook=_unique)
            if not isinstance(fields, dict):
                raise FormatError("its header is no JSON object")
            self.metadata = self._metadata(fields.pop("__metadata__", None))
            self.begin = 8 + size
            found = [self._tensor(key, value) for key, value in fields.items()]
            self._check(found, length)
        except FormatError as failure:
            raise FormatError(f"{name} is damaged: {failure}") from None
        except (ValueError, RecursionError) as failure:
            raise FormatError(f"{name} is damaged: its header is no JSON ({failure})") from None
        self.tensors = {tensor.name: tensor for tensor in sorted(found, key=lambda one: (one.begin, one.end))}

    @staticmethod
    def _metadata(value: Any) -> dict[str, str] | None:
        if value is None:
            return None
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise FormatError("its __metadata__ is no table of texts")
        return value

    def _tensor(self, name: str, value: Any) -> Tensor:
        if not isinstance(value, dict) or not {"dtype", "shape", "data_offsets"} <= value.keys():
            raise FormatError(f"the tensor {name[:80]} lacks dtype, shape or data_offsets")
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]

        def sizes(numbers: Any) -> bool:
            return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)

        if not isinstance(dtype, str) or not sizes(shape) or not sizes(offsets) or len(offsets) != 2:
            raise FormatError(f"the tensor {name[:80]} has an impossible dtype, shape or place")
        count = 1
        for extent in shape:
            count *= extent
        bits = _BITS.get(dtype, 8 if dtype.startswith("F8_") else None)
        if bits is not None and (count * bits + 7) // 8 != offsets[1] - offsets[0]:
            raise FormatError(f"the tensor {name[:80]} of {count} {dtype} has {offsets[1] - offsets[0]} bytes")
        return Tensor(name, dtype, tuple(shape), self.begin + offsets[0], self.begin + offsets[1])

    def _check(self, tensors: list[Tensor], length: int) -> None:
        at = self.begin
        for tensor in sorted(tensors, key=lambda one: (one.begin, one.end)):
            if tensor.begin != at or tensor.end < tensor.begin:
                raise FormatError(f"the tensor {tensor.name[:80]} overlaps another, or leaves a hole before it")
            at = tensor.end
        if at != length:
            raise FormatError(f"its tensors end at byte {at}, the file at {length}" + ("; it is truncated" if at > length else ""))


def shards(path: str | os.PathLike[str]) -> list[str]:
    """The files behind a path: itself; those that an `*.index.json` names; those of a directory with one index or without.
    FileNotFoundError, FormatError."""
    name = os.fspath(path)
    if name.startswith(SCHEME):
        return [name]
    if os.path.isdir(name):
        indexes = sorted(str(one) for one in pathlib.Path(name).glob("*.safetensors" + _INDEX))
        if len(indexes) == 1:
            return _of_index(indexes[0])
        found = sorted(str(one) for one in pathlib.Path(name).glob("*.safetensors"))
        if not found:
            raise FileNotFoundError(2, "no *.safetensors in this directory", name)
        return found
    return _of_index(name) if name.endswith(_INDEX) else [name]


def _of_index(name: str) -> list[str]:
    try:
        index = json.loads(pathlib.Path(name).read_text(encoding="utf-8"))
        named = index["weight_map"].values()
        files = sorted(set(named))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as failure:
        raise FormatError(f"{name} is no index of shards: it needs a weight_map of texts") from failure
    if not all(isinstance(one, str) and one and pathlib.PurePosixPath(one).name == one for one in files):
        raise FormatError(f"{name} names a shard that is no plain file name; shards lie beside their index")
    return [os.path.join(os.path.dirname(name), one) for one in files]


def paths_of(paths: str | os.PathLike[str] | collections.abc.Iterable[str | os.PathLike[str]]) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        return shards(paths)
    return [file for path in paths for file in shards(path)]
