"""starlane.dcp beside torch's own reader and writer, and what readers see while a checkpoint is written."""

import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest
from conftest import wait_until

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402

from starlane.dcp import Part, Reader, Writer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def state(seed: int = 0) -> dict:
    dice = torch.Generator().manual_seed(seed)  # of its own: threads call this at once
    return {"layer": {f"w{n}": torch.randn(300 + n, 257, generator=dice) for n in range(12)},
            "half": torch.randn(4097, generator=dice).to(torch.bfloat16),
            "empty": torch.zeros(0, 3), "scalar": torch.tensor(float(seed)), "step": 100 + seed, "text": f"run {seed}"}


def blank() -> dict:
    found = state(0)
    return {"layer": {name: torch.full_like(t, -1) for name, t in found["layer"].items()},
            "half": torch.zeros(4097, dtype=torch.bfloat16), "empty": torch.zeros(0, 3), "scalar": torch.tensor(-1.0),
            "step": 0, "text": ""}


def same(one: dict, other: dict) -> bool:
    return (all(torch.equal(one["layer"][n], other["layer"][n]) for n in one["layer"])
            and torch.equal(one["half"], other["half"]) and one["scalar"] == other["scalar"]
            and (one["step"], one["text"]) == (other["step"], other["text"]))


@pytest.mark.parametrize("write", [Writer, dcp.FileSystemWriter])
@pytest.mark.parametrize("read", [Reader, dcp.FileSystemReader])
def test_each_reads_what_the_other_wrote(work, write, read):
    dcp.save(state(3), storage_writer=write(work / "ckpt"), no_dist=True)
    loaded = blank()
    dcp.load(loaded, storage_reader=read(work / "ckpt"), no_dist=True)
    assert same(loaded, state(3))
    assert os.listdir(work) == ["ckpt"]


def test_parts_of_one_item_are_read_once(work, monkeypatch):
    """A plan that asks for one stored tensor in two pieces."""
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

    class Halves(DefaultLoadPlanner):
        def create_local_plan(self):
            plan = super().create_local_plan()
            import dataclasses

            items = []
            for item in plan.items:
                rows = item.lengths[0] if len(item.lengths) == 2 else 0
                if rows < 2:
                    items.append(item)
                    continue
                half = rows // 2
                for start, length in ((0, half), (half, rows - half)):
                    items.append(dataclasses.replace(
                        item, dest_offsets=torch.Size((start, 0)), storage_offsets=torch.Size((start, 0)),
                        lengths=torch.Size((length, item.lengths[1]))))
            return dataclasses.replace(plan, items=items)

    dcp.save(state(4), storage_writer=Writer(work / "ckpt"), no_dist=True)
    reads = []
    original = Reader._item
    monkeypatch.setattr(Reader, "_item", lambda self, index, request: reads.append(index) or original(self, index, request))
    loaded = blank()
    dcp.load(loaded, storage_reader=Reader(work / "ckpt"), planner=Halves(), no_dist=True)
    assert same(loaded, state(4))
    assert len(reads) == len(set(reads))


def test_an_earlier_checkpoint_stays_until_the_new_one_is_whole(work):
    dcp.save(state(1), storage_writer=Writer(work / "ckpt"), no_dist=True)
    seen, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            loaded = blank()
            try:
                dcp.load(loaded, storage_reader=Reader(work / "ckpt"), no_dist=True)
            except CheckpointException as error:  # the exchange fell into it
                seen.append(str(error))
                continue
            seen.append(next((n for n in (1, 2) if same(loaded, state(n))), "mixed"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    wait_until(lambda: 1 in seen)
    for _ in range(3):
        dcp.save(state(2), storage_writer=Writer(work / "ckpt"), no_dist=True)
    wait_until(lambda: 2 in seen)
    stop.set()
    watcher.join()
    assert "mixed" not in seen
    assert os.listdir(work) == ["ckpt"]
    with pytest.raises(CheckpointException, match="is there already"):
        dcp.save(state(2), storage_writer=Writer(work / "ckpt", overwrite=False), no_dist=True)


def test_what_an_attempt_left_is_removed(work):
    (work / "ckpt.saving").mkdir()
    (work / "ckpt.saving/__9_9.distcp").write_bytes(b"old")
    dcp.save(state(1), storage_writer=Writer(work / "ckpt"), no_dist=True)
    assert os.listdir(work) == ["ckpt"]
    assert "__9_9.distcp" not in os.listdir(work / "ckpt")


def test_a_short_file_is_an_error(work):
    dcp.save(state(1), storage_writer=Writer(work / "ckpt"), no_dist=True)
    longest = max((work / "ckpt").glob("*.distcp"), key=lambda path: path.stat().st_size)
    os.truncate(longest, longest.stat().st_size // 2)
    with pytest.raises(CheckpointException, match="incomplete"):
        dcp.load(blank(), storage_reader=Reader(work / "ckpt"), no_dist=True)
    longest.unlink()
    with pytest.raises(CheckpointException, match="No such file"):
        dcp.load(blank(), storage_reader=Reader(work / "ckpt"), no_dist=True)


def test_a_part_is_a_file(tmp_path):
    (tmp_path / "f").write_bytes(bytes(range(100)))
    with open(tmp_path / "f", "rb") as file:
        part = Part(file.fileno(), 10, 50)
        assert part.read() == bytes(range(10, 60))
        assert part.read() == b""
        part.seek(-5, os.SEEK_END)
        assert part.read(3) == bytes([55, 56, 57])
        assert part.tell() == 48


RANK = """
import json, os, sys, time, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Shard, Replicate, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402

from starlane.dcp import Reader, Writer
path, what = sys.argv[1:3]
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(1)
whole = torch.randn(4096, 512)
replicated = torch.randn(2048, 1024)
sharded = distribute_tensor(whole.clone() if what != "load" else torch.zeros_like(whole), mesh, [Shard(0)])
state = {"sharded": sharded, "replicated": replicated.clone() if what != "load" else torch.zeros_like(replicated)}
if what == "save":
    dcp.save(state, storage_writer=Writer(path))
elif what == "async":
    saving = dcp.async_save(state, storage_writer=Writer(path))
    state["replicated"].zero_()  # training goes on; what was staged is saved
    saving.result()
    dist.barrier()
else:
    dcp.load(state, storage_reader=Reader(path))
    assert torch.equal(state["replicated"], replicated)
    assert torch.equal(state["sharded"].full_tensor(), whole)
print("done")
"""


def ranks(count: int, env: dict, path: pathlib.Path, what: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    port = 20_000 + os.getpid() % 20_000
    running = [subprocess.Popen([sys.executable, "-W", "ignore", script, path, what], stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.PIPE,
                                env={**env, "RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
                                     "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
               for rank in range(count)]
    for process in running:
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out[-5:]) == (0, "done\n"), err[-3000:]


@pytest.mark.slow
def test_ranks_save_load_and_load_with_another_number_of_ranks(work, python_env, tmp_path):
    ranks(2, python_env, work / "ckpt", "save", tmp_path)
    assert os.listdir(work) == ["ckpt"]
    ranks(2, python_env, work / "ckpt", "load", tmp_path)
    ranks(1, python_env, work / "ckpt", "load", tmp_path)


@pytest.mark.slow
def test_an_async_save_is_of_the_moment_it_was_asked_for(work, python_env, tmp_path):
    ranks(2, python_env, work / "ckpt", "async", tmp_path)
    ranks(2, python_env, work / "ckpt", "load", tmp_path)


@pytest.mark.slow
def test_the_store_sends_replicated_data_once_a_host(own_site, python_env, tmp_path):
    path = own_site.mount / "volumes/work/ckpt"
    ranks(2, python_env, path, "save", tmp_path)
    size = sum(file.stat().st_size for file in path.iterdir())
    own_site.down()
    own_site.up()

    def fetched() -> int:
        time.sleep(1.3)  # the mount writes its figures once a second
        return own_site.json("status")["roles"]["mount"]["figures"]["fetched_bytes"]

    before = fetched()
    ranks(2, python_env, path, "load", tmp_path)
    assert fetched() - before <= 1.05 * size
