"""Moves ranges of files to their places: many chunks in flight, in the order given, on a few threads. Who needs a part early
waits for that part alone. One Transfer is driven by one thread; Ctrl-C in it ends the waits."""

from __future__ import annotations

import bisect
import collections.abc
import dataclasses
import os
import threading
from typing import Any

from starlane.torch._source import Segment, Source

CHUNK = 8 << 20  # bytes: two to four requests of the kernel in flight each
THREADS = max(2, min(8, (os.cpu_count() or 4)))


@dataclasses.dataclass
class Chunk:
    """segments: places in memory, in turn. keep: what owns that memory, until the bytes have landed. landed: called by the
    thread that read it."""

    source: Source
    offset: int
    segments: list[Segment]
    keep: Any = None
    landed: collections.abc.Callable[[], None] | None = None

    @property
    def length(self) -> int:
        return sum(length for _, length in self.segments)


def cut(source: Source, offset: int, address: int, length: int, keep: Any = None) -> list[Chunk]:
    """A range to one piece of memory; chunks end where a chunk of the file may end."""
    chunks, at = [], 0
    while at < length:
        n = min(length - at, CHUNK - (offset + at) % CHUNK)
        chunks.append(Chunk(source, offset + at, [(address + at, n)], keep))
        at += n
    return chunks


class Transfer:
    """read: how a chunk is read; by default straight into its memory. It is called by several threads at once."""

    def __init__(self, chunks: collections.abc.Sequence[Chunk], threads: int = THREADS,
                 read: collections.abc.Callable[[Chunk], None] | None = None):
        self._chunks = chunks
        self._read = read or (lambda chunk: chunk.source.read_into(chunk.offset, chunk.segments))
        self._changed = threading.Condition()
        self._next, self._stop = 0, False
        self._done = [False] * len(chunks)
        self._left = len(chunks)
        self._failure: BaseException | None = None
        self._places: dict[int, tuple[list[int], list[int]]] = {}
        for number, chunk in enumerate(chunks):
            starts, numbers = self._places.setdefault(id(chunk.source), ([], []))
            starts.append(chunk.offset)
            numbers.append(number)
        if len(chunks) == 1:
            self._work()  # nothing to do at once with it
            return
        for _ in range(min(threads, len(chunks))):
            threading.Thread(target=self._work, name="starlane-load", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._stop or self._failure or self._next == len(self._chunks):
                    return
                number = self._next
                self._next += 1
            chunk = self._chunks[number]
            failure: BaseException | None = None
            try:
                self._read(chunk)
                if chunk.landed:
                    chunk.landed()
            except BaseException as caught:  # told to whoever waits
                failure = caught
            chunk.keep = None
            with self._changed:
                self._done[number] = True
                self._left -= 1
                self._failure = self._failure or failure
                self._changed.notify_all()

    def wait_range(self, source: Source, begin: int, end: int) -> None:
        """Until the bytes of [begin, end) have landed, as far as chunks hold them (they were given in file order)."""
        starts, numbers = self._places.get(id(source), ([], []))
        first = max(0, bisect.bisect_right(starts, begin) - 1)
        last = bisect.bisect_left(starts, end)
        self._wait(lambda: all(self._done[number] for number in numbers[first:last]))

    def wait(self) -> None:
        """Until all of it has landed. Raises what went wrong first."""
        self._wait(lambda: self._left == 0)

    def _wait(self, over: collections.abc.Callable[[], bool]) -> None:
        with self._changed:
            while not self._failure and not over():
                self._changed.wait()
            if self._failure:
                raise self._failure

    def close(self) -> None:
        """No further chunk is begun; those under way are waited for, so that none lands in memory that is given away. A
        second Ctrl-C ends that wait: the threads keep the memory then."""
        with self._changed:
            self._stop = True
            under_way = self._next - sum(self._done[:self._next])
            while under_way > 0:
                self._changed.wait()
                under_way = self._next - sum(self._done[:self._next])

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
