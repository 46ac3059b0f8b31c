"""train.py DIRECTORY [--steps N]: a sharded model trained by several ranks, saved as it goes. Kill it whenever you like and start
it again: it goes on from the last whole checkpoint, and ends with the loss that it would have had.

    torchrun --nproc-per-node 2 examples/dcp/train.py /mnt/starlane/volumes/work/run-1"""

import argparse
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from starlane.dcp import Reader, Writer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("directory", type=pathlib.Path)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
options = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("cuda:nccl,cpu:gloo" if device == "cuda" else "gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
if device == "cuda":
    torch.cuda.set_device(rank % torch.cuda.device_count())

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 512), torch.nn.GELU(),
                            torch.nn.Linear(512, 64)).to(device)
fully_shard(model, mesh=init_device_mesh(device, (ranks,)))  # each rank has a part of every parameter
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def state(step: int) -> dict:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": torch.tensor(step)}


latest = options.directory / "latest"  # always whole: each save takes its place by one rename
first = 0
if (latest / ".metadata").exists():
    found = state(0)
    dcp.load(found, storage_reader=Reader(latest))
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    first = int(found["step"])
    if rank == 0:
        print(f"going on after step {first}", flush=True)

saving, savers = None, dist.new_group(backend="gloo")  # a group of its own: saves and training talk at the same time
for step in range(first + 1, options.steps + 1):
    batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(step * ranks + rank)).to(device)
    loss = torch.nn.functional.mse_loss(model(batch), batch.cumsum(1).tanh())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step}: loss {loss.item():.6f}", flush=True)
    if step % options.every == 0:
        if saving:
            saving.result()  # one at a time
        saving = dcp.async_save(state(step), storage_writer=Writer(latest), process_group=savers)  # training goes on meanwhile
if saving:
    saving.result()
dist.destroy_process_group()
