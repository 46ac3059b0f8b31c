"""Memory for what is loaded: one anonymous mapping a file, in huge pages where the kernel has them, of which tensors are
views. It lives as long as one of them does; nothing else ever writes into it."""

from __future__ import annotations

import ctypes
import mmap

import torch

from starlane import memory

_HUGE = 2 << 20
_CHECKED = 64 << 20  # smaller ones are not worth a look at what is free
_ADVICE_HUGE, _NO_RESERVE = 14, 0x4000  # MADV_HUGEPAGE, MAP_NORESERVE: Python has no names for them before 3.13


class Arena:
    """length bytes, zero until they are written. A reservation (reserve=True) is memory that nobody will touch: addresses
    only. MemoryError: there is not so much memory; said before the kernel would kill somebody."""

    def __init__(self, length: int, *, reserve: bool = False):
        free = memory.available() if length >= _CHECKED and not reserve else None
        if free is not None and length > free:
            raise MemoryError(f"{length} bytes are wanted, {free} are free; load with load_into, or shard by shard")
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_NO_RESERVE if reserve else 0)
        try:
            whole = mmap.mmap(-1, length + _HUGE, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, OverflowError, ValueError) as failure:
            raise MemoryError(f"{length} bytes are wanted, and cannot be had") from failure
        start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
        skipped = -start % _HUGE
        if not reserve and length >= _HUGE:
            try:
                whole.madvise(_ADVICE_HUGE)
            except OSError:
                pass  # ordinary pages then
        self.length = length
        self.address = start + skipped
        self._view = memoryview(whole)[skipped:skipped + length]

    def tensor(self, begin: int, length: int) -> torch.Tensor:
        """uint8 of shape (length,), with a storage of exactly that size."""
        if length == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self._view[begin:begin + length], dtype=torch.uint8)

    def bytes(self, begin: int, length: int) -> memoryview:
        return self._view[begin:begin + length]
