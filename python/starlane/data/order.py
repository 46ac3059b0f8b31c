"""The order of an epoch. It is agreed between hosts and kept in resume states, so it rests on nothing that a library may
change: SHA-256 of (seed, epoch) is the key of a small Feistel network over the indexes, which needs no memory either."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

ROUNDS = 4


@dataclass(frozen=True)
class Order:
    """A permutation of range(length), cut among `shards` that each take every `shards`-th of it.

    Shards differ by one at most in length. Equal arguments give equal orders, on every host and in every release.

    Raises:
        ValueError: a shard that is not one of `shards`.
    """

    length: int
    seed: int = 0
    epoch: int = 0
    shuffle: bool = True
    shard: int = 0
    shards: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.shard < self.shards:
            raise ValueError(f"shard {self.shard} is not one of {self.shards}; it counts from 0")

    def __len__(self) -> int:
        return max(0, -(-(self.length - self.shard) // self.shards))

    def __getitem__(self, position: int) -> int:
        """The index at a position of this shard."""
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} of {len(self)}")
        at = self.shard + position * self.shards
        if not self.shuffle:
            return at
        at = self._mix(at)
        while at >= self.length:  # the network permutes a power of four: what falls outside walks on until it is inside
            at = self._mix(at)
        return at

    def __iter__(self) -> Iterator[int]:
        return (self[position] for position in range(len(self)))

    def _mix(self, value: int) -> int:
        half = max(1, (max(1, self.length - 1).bit_length() + 1) // 2)
        mask = (1 << half) - 1
        left, right = value >> half, value & mask
        for key in _keys(self.seed, self.epoch):
            product = (right + 1) * 0x9E3779B97F4A7C15 ^ key
            product = (product ^ product >> 29) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
            left, right = right, left ^ (product >> 32 & mask)
        return left << half | right


def _keys(seed: int, epoch: int) -> tuple[int, ...]:
    kept = _KEYS.get((seed, epoch))
    if kept is None:
        digest = hashlib.sha256(f"starlane order 1: {seed} {epoch}".encode()).digest()
        kept = tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(ROUNDS))
        _KEYS.clear()  # one epoch at a time is in use
        _KEYS[(seed, epoch)] = kept
    return kept


_KEYS: dict[tuple[int, int], tuple[int, ...]] = {}
