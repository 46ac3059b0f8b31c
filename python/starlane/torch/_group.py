"""A load that the ranks of a process group share: each reads a part of every file and sends it to the others."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed

from starlane.torch._load_file import HostShard, Shard
from starlane.torch._transfer import CHUNK, Transfer
from starlane.torch.report import Report


def parts_of(length: int, ranks: int) -> list[tuple[int, int]]:
    """One range a rank, cut at chunks."""
    share = -(-length // ranks)
    share += -share % CHUNK
    return [(min(rank * share, length), min((rank + 1) * share, length)) for rank in range(ranks)]


def load_shards(shards: list[Shard], group: Any, threads: int, report: Report) -> dict[str, torch.Tensor]:
    distributed: Any = torch.distributed
    rank, ranks = distributed.get_rank(group), distributed.get_world_size(group)
    failure: Exception | None = None
    hosts: list[HostShard] = []
    try:
        with report.phase("memory"):
            hosts = [HostShard(shard) for shard in shards]
        chunks = [chunk for host in hosts for chunk in host.chunks(*parts_of(host.length, ranks)[rank])]
        with Transfer(chunks, threads) as transfer, report.phase("read"):
            transfer.wait()
    except Exception as caught:  # the others wait for this rank: they have to hear of it
        failure = caught
    on_gpu = "nccl" in str(distributed.get_backend(group))
    failed = torch.tensor([0 if failure is None else 1], device="cuda" if on_gpu else "cpu")
    distributed.all_reduce(failed, group=group)
    if failure is not None:
        raise failure
    if int(failed.item()):
        raise RuntimeError(f"{int(failed.item())} of the {ranks} ranks could not read their part")
    with report.phase("exchange"):
        for host in hosts:
            _exchange(host, group, ranks, on_gpu)
    return {name: tensor for host in hosts for name, tensor in host.tensors().items()}


def _exchange(host: HostShard, group: Any, ranks: int, on_gpu: bool) -> None:
    distributed: Any = torch.distributed
    if not host.length:
        return
    memory = host.bytes()
    for sender, (begin, end) in enumerate(parts_of(host.length, ranks)):
        if begin == end:
            continue
        source = distributed.get_global_rank(group, sender) if group is not distributed.group.WORLD else sender
        part = memory[begin:end]
        sent = part.cuda() if on_gpu else part
        distributed.broadcast(sent, source, group=group)
        if on_gpu:
            part.copy_(sent)
