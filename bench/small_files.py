#!/usr/bin/env python3
"""Training data of many small files: torchdata's DataPipes (FileLister, open_files, read) over a published tree, second epoch,
beside the same tree on a local file system with a warm page cache; through the mount, and from where the kernel serves the
version by itself (`dataset mount`; needs root); and `starlane.data.Samples` over the same files. Prints medians and ratios of
interleaved rounds, and checks that every way read the same bytes.

Run it with a Python that has torch and torchdata 0.9 (`tools/python_venv` makes one):
  .venv-torch/bin/python bench/small_files.py                  100 000 files of 30 KB; needs 10 GiB of memory, 3.2 GiB of disk
  .venv-torch/bin/python bench/small_files.py --files 10000    a tenth of it
"""

import argparse
import hashlib
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time
import warnings

import report
import sites

FOLDER_FILES = 1000


def make_tree(root: pathlib.Path, files: int, size: int) -> None:
    noise = random.Random(1).randbytes(size + files)
    for number in range(files):
        path = root / f"{number // FOLDER_FILES:04}" / f"{number:07}.bin"
        if number % FOLDER_FILES == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(noise[number : number + size])


def sum_of(pieces) -> tuple[int, str]:
    """How many, and a digest of their ends that does not depend on their order."""
    count, total = 0, 0
    for piece in pieces:
        count += 1
        total ^= int.from_bytes(hashlib.blake2b(piece[:64] + piece[-64:], digest_size=16).digest(), "little")
    return count, f"{total:032x}"


def data_pipes(root: pathlib.Path):
    from torchdata.datapipes.iter import FileLister

    for _, stream in FileLister(str(root), recursive=True).open_files(mode="b"):
        yield stream.read()
        stream.close()


def samples(root: pathlib.Path):
    from starlane.data import Samples, Tree

    for _, data in Samples(Tree(root, cache="/dev/null").files()):
        yield data


def timed(way, root: pathlib.Path) -> tuple[float, tuple[int, str]]:
    started = time.perf_counter()
    answer = sum_of(way(root))
    return time.perf_counter() - started, answer


def measure(options, published: pathlib.Path, kernel: pathlib.Path, local: pathlib.Path) -> dict[str, list[float]]:
    ways = {"DataPipes, local": (data_pipes, local), "DataPipes, through the mount": (data_pipes, published),
            "DataPipes, dataset mount": (data_pipes, kernel), "starlane.data, the mount": (samples, published),
            "starlane.data, dataset mount": (samples, kernel)}
    first = {name: timed(way, root) for name, (way, root) in ways.items()}  # the first epoch warms what there is to warm
    expected = first["DataPipes, local"][1]
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.runs):
        for name, (way, root) in ways.items():
            seconds, answer = timed(way, root)
            if answer != expected or expected[0] != options.files:
                sys.exit(f"{name} read other bytes than were published: this is a fault of the file system, please report it")
            took[name].append(seconds)
    print("first epoch: " + "; ".join(f"{name} {seconds:.2f} s" for name, (seconds, _) in first.items()))
    return took


def show(options, took: dict[str, list[float]], kind: str) -> None:
    local = took["DataPipes, local"]
    print(f"{options.files} files of {options.size} bytes, {report.machine()}, "
          f"local: {kind}; medians of {options.runs} later epochs\n")
    print(f"{'WHAT':30}{'TOOK':>10}{'FILES/s':>10}{'RATIO':>8}")
    for name, seconds in took.items():
        median = statistics.median(seconds)
        ratio = statistics.median(there / here for here, there in zip(seconds, local, strict=True))
        print(f"{name:30}{median:8.2f} s{options.files / median:10.0f}{ratio:8.2f}")
    print("\nratio: how fast, beside DataPipes on the local file system in the same round")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=30_000, help="bytes of a file")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--local", type=pathlib.Path, default=sites.DISK, help="a directory on the local file system")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    local = sites.Local(options.local)
    kernel = local.path / "mounted"
    site = None
    try:
        make_tree(local.path / "tree", options.files, options.size)
        site = sites.Site()
        site.run("dataset", "publish", str(local.path / "tree"), "small", "v1")
        published = site.directory / "mnt/public/small/v1"
        while not published.is_dir():
            time.sleep(0.1)
        kernel.mkdir()
        site.run("dataset", "mount", str(published), str(kernel))
        show(options, measure(options, published, kernel, local.path / "tree"), sites.kind_of(local.path))
    finally:
        subprocess.run(["umount", "-l", kernel], capture_output=True)
        if site is not None:
            site.remove()
        local.remove()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; what it made is removed")
