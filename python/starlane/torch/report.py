"""What a load or a save did: how many bytes, where they came from, and how long each phase took. `print(last())`."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import os
import threading
import time

from starlane import metrics


@dataclasses.dataclass
class Report:
    """bytes: of tensors. from_store, from_cache: bytes that this host fetched from block stores meanwhile, and those that
    needed no fetch (the node cache, the page cache); None where the site is not known (set STARLANE_DIR). phases: seconds by
    name; reading and unpickling overlap. Of the whole host: two loads at once see each other's bytes."""

    what: str
    path: str = ""
    bytes: int = 0
    tensors: int = 0
    from_store: int | None = None
    from_cache: int | None = None
    seconds: float = 0.0
    phases: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def phase(self, name: str) -> collections.abc.Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - begin

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        lines = [f"{self.what} {self.path}: {_size(self.bytes)} in {self.tensors} tensors, {self.seconds:.3f} s, "
                 f"{self.bytes_per_second / 1e9:.2f} GB/s"]
        if self.from_store is not None and self.from_cache is not None:
            lines.append(f"  from the store {_size(self.from_store)}, from this host's caches {_size(self.from_cache)}")
        lines += [f"  {name:<12} {took:.3f} s" for name, took in self.phases.items()]
        return "\n".join(lines)


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


_last = threading.local()


def last() -> Report | None:
    """Of the calling thread's last load or save."""
    return getattr(_last, "report", None)


@contextlib.contextmanager
def reporting(what: str, path: str) -> collections.abc.Iterator[Report]:
    """Times the whole, and counts the site's fetches around it."""
    report, before, begin = Report(what, path), _fetched_bytes(), time.perf_counter()
    try:
        yield report
    finally:
        report.seconds = time.perf_counter() - begin
        after = _fetched_bytes() if before is not None else None
        if before is not None and after is not None:
            report.from_store = after - before
            report.from_cache = max(0, report.bytes - report.from_store)
        _last.report = report


def _fetched_bytes() -> int | None:
    """Bytes that the mounts of this host have read from block stores, if STARLANE_DIR names their site."""
    directory = os.environ.get("STARLANE_DIR")
    fetched = metrics.totals(directory).get("starlane_client_store_get_bytes_total") if directory else None
    return None if fetched is None else int(fetched)
