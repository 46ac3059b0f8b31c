"""The data set for torch's DataLoader and torchdata's StatefulDataLoader."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from starlane.data.order import Order
from starlane.data.units import Unit, Units

STATE_FORMAT = 1
SMALL = 1 << 20  # bytes: so much is read by one task, where that is several units


class Samples(IterableDataset[Any]):
    """Hands out units in the shuffled order of an epoch, each once among all ranks and workers; reads the next ones ahead.

    Each iteration is the epoch that `set_epoch` chose, from its beginning: call it before each, as for a DistributedSampler.
    Ranks and workers take every so-and-so-many-th unit of the one order, so shards differ by one unit at most.

    Works in workers made by fork and by spawn: threads and descriptors are of the process that iterates. `state_dict` tells
    where the iteration stands; `load_state_dict` goes on there, in the same or in another process.

    Args:
        units: what to hand out, as from `Tree.files`, `Tree.tar_samples`, `Tree.row_groups`.
        seed: of the order.
        shuffle: False: in the order of paths.
        epoch: of the first iteration.
        ahead: how many units are read before they are asked for, in each worker.
        readers: threads that read ahead, in each worker.
        rank, ranks: which part of the order is this process's; by default torch.distributed's, where it is initialised.

    Raises (while iterating):
        OSError: a file cannot be read.
        EOFError: a file is shorter than its version says.
    """

    def __init__(self, units: Units, *, seed: int = 0, shuffle: bool = True, epoch: int = 0, ahead: int = 64,
                 readers: int = 8, rank: int | None = None, ranks: int | None = None):
        super().__init__()
        if ahead < 1 or readers < 1:
            raise ValueError(f"ahead is {ahead} and readers is {readers}; give 1 or more")
        if (rank is None) != (ranks is None):
            raise ValueError("give both rank and ranks, or neither")
        self.units, self.seed, self.shuffle, self.epoch = units, seed, shuffle, epoch
        self.ahead, self.readers = ahead, readers
        self._rank, self._ranks = (rank, ranks) if rank is not None and ranks is not None else _rank_and_ranks()
        self._start = 0  # where the next iteration begins; a loaded state moves it
        self._position = 0  # of the next unit that the running iteration hands out
        self._shard = (0, 1)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, from its beginning."""
        self.epoch, self._start, self._position = epoch, 0, 0

    def __len__(self) -> int:
        """Units of this rank in an epoch, over all its workers."""
        return len(Order(len(self.units), shard=self._rank, shards=self._ranks))

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        shard = (self._rank + number * self._ranks, self._ranks * workers)
        if self._start and self._shard != shard:
            raise ValueError(f"the state is of shard {self._shard[0]} of {self._shard[1]}, this is {shard[0]} of {shard[1]}: "
                             "resume with as many ranks and workers as there were, or call set_epoch")
        self._shard, self._position, self._start = shard, self._start, 0
        order = Order(len(self.units), self.seed, self.epoch, self.shuffle, *shard)
        with ThreadPoolExecutor(self.readers, thread_name_prefix="starlane-data") as pool:
            coming: deque[Future[list[Any]]] = deque()
            try:
                upcoming = self._position
                while self._position < len(order):
                    while upcoming < len(order) and upcoming - self._position < self.ahead:
                        group = self._group(order, upcoming)
                        coming.append(pool.submit(self._read, group))
                        upcoming += len(group)
                    for value in coming.popleft().result():
                        self._position += 1
                        yield value
            finally:
                for waiting in coming:
                    waiting.cancel()

    def _group(self, order: Order, begin: int) -> list[Unit]:
        """What one task reads: a unit, or several small ones, for handing a task over costs as much as reading a small file."""
        group: list[Unit] = []
        size = 0
        for number in range(begin, min(len(order), begin + max(1, self.ahead // self.readers))):
            unit = self.units[order[number]]
            size += sum(part.length for part in unit.parts)
            if group and size > SMALL:
                break
            group.append(unit)
        return group

    def state_dict(self) -> dict[str, Any]:
        """Where this process's iteration stands. It names the version, so that it is not resumed on another one."""
        return {"format": STATE_FORMAT, "version": self.units.version, "units": len(self.units), "seed": self.seed,
                "shuffle": self.shuffle, "epoch": self.epoch, "position": self._position, "shard": list(self._shard)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises:
            ValueError: the state is of another version or selection of files, or of a format that this release does not know.
        """
        if state.get("format") != STATE_FORMAT:
            raise ValueError(f"this release reads states of format {STATE_FORMAT}, not {state.get('format')!r}")
        if state["version"] != self.units.version:
            raise ValueError(f"the state is of {state['version']}, the data are {self.units.version}: "
                             "open the version that the run began with")
        if state["units"] != len(self.units):
            raise ValueError(f"the state is of {state['units']} units, here are {len(self.units)}: choose the same files")
        self.seed, self.shuffle, self.epoch = state["seed"], state["shuffle"], state["epoch"]
        self._start = self._position = state["position"]
        self._shard = (state["shard"][0], state["shard"][1])

    def _read(self, group: list[Unit]) -> list[Any]:
        return [self.units.decode(unit, [self._bytes_of(part.path, part.offset, part.length) for part in unit.parts])
                for unit in group]

    def _bytes_of(self, path: str, offset: int, length: int) -> bytes:
        descriptor = os.open(os.path.join(self.units.root, path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, length, offset)
            while len(data) < length:  # a read may end early, at a signal or at 2 GiB
                more = os.pread(descriptor, length - len(data), offset + len(data))
                if not more:
                    raise EOFError(f"{self.units.root / path} ends at {offset + len(data)}; its version has more")
                data += more
            return data
        finally:
            os.close(descriptor)


def _rank_and_ranks() -> tuple[int, int]:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
