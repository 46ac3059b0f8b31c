"""shards.py make DIRECTORY | read MOUNTED-VERSION [--stop-after N --state FILE]: training data as WebDataset has it.

    python examples/webdataset/shards.py make /tmp/digits
    starlane dataset publish /tmp/digits digits 2024-06
    python examples/webdataset/shards.py read /mnt/starlane/public/digits/2024-06"""

import argparse
import json
import pathlib
import sys

import torch
import webdataset
from torchdata.stateful_dataloader import StatefulDataLoader

from starlane.data import Samples, Tree


def make(directory: pathlib.Path) -> None:
    """240 pictures of bars, and which of ten bars each is; six shards."""
    directory.mkdir(parents=True)
    dice = torch.Generator().manual_seed(1)
    with webdataset.ShardWriter(str(directory / "bars-%03d.tar"), maxcount=40, verbose=0) as shards:
        for number in range(240):
            picture = torch.randint(0, 80, (20, 20), generator=dice, dtype=torch.uint8)
            picture[:, 2 * (number % 10):][:, :2] += 100
            shards.write({"__key__": f"{number:05}", "bin": picture.numpy().tobytes(), "cls": number % 10})


def decoded(sample: dict) -> tuple[str, torch.Tensor, int]:
    picture = torch.frombuffer(bytearray(sample["bin"]), dtype=torch.uint8).view(20, 20)
    return sample["__key__"], picture, int(sample["cls"])


def read(options: argparse.Namespace) -> None:
    plain = webdataset.WebDataset(sorted(map(str, options.directory.glob("*.tar"))), shardshuffle=6, seed=1).map(decoded)
    right = {key: label for key, picture, label in plain}
    print(f"webdataset, unchanged: {len(right)} samples")

    # The same shards by starlane.data: shuffled over all of them, read ahead, and resumed in the middle of an epoch.
    loader = StatefulDataLoader(Samples(Tree(options.directory).tar_samples().map(decoded), seed=1), batch_size=8, num_workers=2)
    if options.state and options.state.exists():
        loader.load_state_dict(torch.load(options.state, weights_only=False))  # workers' states, of this program's own
    seen = []
    for keys, pictures, labels in loader:
        assert all(right[key] == label for key, label in zip(keys, labels.tolist(), strict=True))
        assert torch.equal(pictures.float().mean(1).view(-1, 10, 2).sum(2).argmax(1), labels)
        seen += keys
        if options.stop_after and len(seen) >= options.stop_after:
            torch.save(loader.state_dict(), options.state)
            break
    print(f"starlane.data: {len(seen)} samples")
    print(json.dumps(seen))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("what", choices=["make", "read"])
parser.add_argument("directory", type=pathlib.Path)
parser.add_argument("--stop-after", type=int, help="samples; where it stood goes to --state, and the next run goes on there")
parser.add_argument("--state", type=pathlib.Path)
if __name__ == "__main__":
    given = parser.parse_args()
    if given.stop_after and not given.state:
        sys.exit("--stop-after needs --state, a file to keep in where it stood")
    make(given.directory) if given.what == "make" else read(given)
