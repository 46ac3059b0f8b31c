"""`patch`: other people's code loads through this package for as long as a context lasts."""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import os
import sys
from typing import Any

import torch

from starlane.torch import _load, _load_file, _safe_open
from starlane.torch._source import SCHEME


def _is_zip(path: Any) -> bool:
    """A file by its name that torch.save of 1.6 or later wrote; torch knows the rest."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    if os.fspath(path).startswith(SCHEME):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def _patched_load(original: Any) -> Any:
    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None,
             mmap: bool | None = None, **more: Any) -> Any:
        if not _is_zip(f) or pickle_module is not None or more or weights_only is False or mmap:
            return original(f, map_location, pickle_module, weights_only=weights_only, mmap=mmap, **more)
        return _load.load(f, map_location)

    return load


def _patched_load_file(_original: Any) -> Any:
    def load_file(filename: Any, device: Any = "cpu", **_: Any) -> dict[str, torch.Tensor]:
        return _load_file.load_file(filename, device)

    return load_file


@contextlib.contextmanager
def patch() -> collections.abc.Iterator[None]:
    """Within it torch.load, safetensors.safe_open, safetensors.torch.load_file and transformers' safe_open are those of this
    package, as far as these are imported. What we do not read (files before torch 1.6, file objects, mmap=True,
    weights_only=False, another framework) goes to the original. For the whole process, all threads: not for two contexts
    that overlap in time."""
    replaced: list[tuple[Any, str, Any]] = []

    def replace(module: str, name: str, make: collections.abc.Callable[[Any], Any]) -> None:
        holder = sys.modules.get(module)
        if holder is not None and hasattr(holder, name):
            original = getattr(holder, name)
            replaced.append((holder, name, original))
            setattr(holder, name, make(original))

    def opener(original: Any) -> Any:
        def safe_open(filename: Any, framework: str = "pt", device: Any = "cpu", **more: Any) -> Any:
            if framework not in ("pt", "torch", "pytorch"):
                return original(filename, framework=framework, device=device, **more)
            return _safe_open.safe_open(filename, framework, device)

        return safe_open

    try:
        replace("torch", "load", _patched_load)
        replace("torch.serialization", "load", _patched_load)
        for module in ("safetensors", "safetensors.torch", "transformers.modeling_utils"):
            replace(module, "safe_open", opener)
        replace("safetensors.torch", "load_file", _patched_load_file)
        replace("transformers.modeling_utils", "safe_load_file", _patched_load_file)
        yield
    finally:
        for holder, name, original in reversed(replaced):
            setattr(holder, name, original)
