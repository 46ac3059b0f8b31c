"""One command for a host with a GPU: `python -m starlane.gpu_check [PATH]`. Writes a checkpoint (to PATH, a directory on a
Starlane mount; else to /dev/shm), loads it to each GPU by load_file and load, compares every bit, and prints bandwidths beside
the limit of pinned copies on this machine. Without a GPU it says so and checks the same code on the fake device. Not proved by
it, for want of a peer: GPU-direct RDMA."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time

import torch

import starlane.torch as st
from starlane import devices
from starlane.torch._load_file import HostShard, open_shards
from starlane.torch._transfer import Transfer

_MIB = 1 << 20


def pinned_limit(ops: devices.DeviceOps, address: int, length: int) -> float:
    """Bytes a second of copies from pinned memory, two in flight: no loader can be faster."""
    piece = min(length, devices.PIN_CHUNK)
    buffer = ops.pinned(piece)
    try:
        begin = time.perf_counter()
        for at in range(0, length - piece + 1, piece):
            ops.copy_in(address + at, buffer, piece)
        ops.synchronize()
        return length / (time.perf_counter() - begin)
    finally:
        ops.unpin(buffer)


def host_limit(path: str) -> float:
    """Bytes a second into host memory."""
    with open_shards([path]) as shards:
        host = HostShard(shards[0])
        begin = time.perf_counter()
        with Transfer(host.chunks()) as transfer:
            transfer.wait()
        return host.length / (time.perf_counter() - begin)


def state_of(size: int) -> dict[str, torch.Tensor]:
    """bf16 tensors of a model's shapes, and some small ones; random bits."""
    generator = torch.Generator().manual_seed(11)
    rows = max(1, size // 8 // 8192)
    state = {f"block.{i}": torch.randint(-30000, 30000, (rows, 4096), dtype=torch.int16, generator=generator).view(torch.bfloat16)
             for i in range(8)}
    return state | {f"small.{i}": torch.full((13,), float(i)) for i in range(64)}


def differing(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], fake: devices.Fake | None) -> int:
    """Tensors with a bit that is not as it was written."""
    wrong = 0
    for name, tensor in wanted.items():
        raw = tensor.contiguous().view(torch.uint8)
        if fake is not None:
            back = torch.frombuffer(bytearray(fake.read(got[name].data_ptr(), raw.numel())), dtype=torch.uint8).view(raw.shape)
        else:
            back = got[name].cpu().view(torch.uint8)
        wrong += not torch.equal(raw, back)
    return wrong


def check(name: str, target: torch.device | devices.Fake, folder: str, state: dict[str, torch.Tensor], runs: int) -> bool:
    """Prints the lines of one device; whether all bits were right."""
    import safetensors.torch

    safe, zipped = os.path.join(folder, "check.safetensors"), os.path.join(folder, "check.pt")
    safetensors.torch.save_file(state, safe)
    st.save(state, zipped)
    fake = target if isinstance(target, devices.Fake) else None
    length = 64 * _MIB
    if fake is not None:
        limit, kind = pinned_limit(devices.FakeOps(fake), fake.alloc(length), length), "fake device, says nothing of a GPU"
    else:
        assert isinstance(target, torch.device)
        memory = torch.empty(length, dtype=torch.uint8, device=target)
        ops = devices.gpu_ops(target.index, hip=torch.version.hip is not None)
        limit, kind = statistics.median(pinned_limit(ops, memory.data_ptr(), length) for _ in range(5)), str(target)
    host = host_limit(safe)
    print(f"{name}: {kind}")
    print(f"  pinned copies       {limit / 1e9:7.2f} GB/s\n  file to host        {host / 1e9:7.2f} GB/s")
    right = True
    for what, load in (("load_file", lambda: st.load_file(safe, device=target)), ("load", lambda: st.load(zipped, target))):
        rates = []
        for _ in range(runs):
            got = load()
            report = st.last_report()
            assert report is not None
            rates.append(report.bytes_per_second)
            wrong = differing(got, state, fake)
            right = right and wrong == 0
            del got
        rate, floor = statistics.median(rates), min(limit, host)
        print(f"  {what:<19} {rate / 1e9:7.2f} GB/s   {rate / floor:5.2f} of the lower limit   "
              f"{'bits right' if right else 'BITS WRONG'}")
    if fake is None:
        begin = time.perf_counter()
        theirs = safetensors.torch.load_file(safe, device=str(target))
        torch.cuda.synchronize()
        print(f"  safetensors         {sum(t.nbytes for t in theirs.values()) / (time.perf_counter() - begin) / 1e9:7.2f} GB/s")
    for file in (safe, zipped):
        os.unlink(file)
    return right


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m starlane.gpu_check", description=__doc__)
    parser.add_argument("path", nargs="?", help="a directory on a Starlane mount (default: one in /dev/shm)")
    parser.add_argument("--size-mib", type=int, default=512, help="of the checkpoint")
    parser.add_argument("--runs", type=int, default=3, help="loads of each kind; medians are shown")
    options = parser.parse_args()
    if options.size_mib < 1 or options.runs < 1:
        parser.error("--size-mib and --runs are at least 1")
    try:
        import safetensors.torch  # noqa: F401
    except ImportError:
        parser.error("safetensors is needed: pip install safetensors")
    found = devices.gpus()
    for vendor, count in found.items():
        print(f"{vendor}: {count if isinstance(count, str) else f'{count} devices'}")
    state = state_of(options.size_mib * _MIB)
    with tempfile.TemporaryDirectory(prefix="starlane-gpu-check-", dir=options.path or "/dev/shm") as folder:
        targets: list[tuple[str, torch.device | devices.Fake]] = []
        if torch.cuda.is_available():
            targets = [(torch.cuda.get_device_name(i), torch.device("cuda", i)) for i in range(torch.cuda.device_count())]
        else:
            print("no GPU that torch can use; the same code on a fake device:")
            targets = [("fake", devices.Fake())]
        return 0 if all([check(name, target, folder, state, options.runs) for name, target in targets]) else 1


if __name__ == "__main__":
    sys.exit(main())
