"""Memory that a virtual machine really has, for what is measured: see docs/performance.md."""

from __future__ import annotations

import mmap
import pathlib
import threading

_PIECE = 64 << 20
_AHEAD = 512 << 20  # what is free and still this machine's: its host takes more than about 1 GiB back
_LOOK = 0.01  # seconds


def _free() -> int:
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemFree")


class MemoryAtHand:
    """While it is open: `size` bytes that were used before are given free a little ahead of whoever uses memory on this
    machine, so that nobody waits for its host."""

    def __init__(self, size: int):
        self._pieces = [self._used() for _ in range(-(-size // _PIECE))]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(_free(),), daemon=True)

    @staticmethod
    def _used() -> mmap.mmap:
        piece = mmap.mmap(-1, _PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        piece.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, _PIECE, mmap.PAGESIZE):
            piece[at] = 1
        return piece

    def _run(self, before: int) -> None:
        while self._pieces:
            for _ in range((before + _AHEAD - _free()) // _PIECE):
                if self._pieces:
                    self._pieces.pop().close()
            if self._over.wait(_LOOK):
                return

    def __enter__(self) -> MemoryAtHand:
        self._thread.start()
        self._over.wait(3 * _LOOK)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for piece in self._pieces:
            piece.close()
