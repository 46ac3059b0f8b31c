#!/usr/bin/env python3
"""starlane.torch beside what it replaces, as ratios in one run: load_file and load from a Starlane mount, cold and warm, against
safetensors.load_file and torch.load on the same mount and on a local file in memory; the C interface; save against torch.save;
the metadata phase of 20 000 tensors. Prints a table.

Run it with a Python that has torch and safetensors, on a quiet machine: .venv-torch/bin/python bench/loading.py [--size 1GiB]"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import checkpoint as common

sys.path.insert(0, str(common.ROOT / "python"))
READERS = ("safetensors", "load_file", "load_file site", "load_into", "torch.load", "load")


def bits_of(state: dict) -> int:
    """A sum over every bit, modulo 2^64: it touches all of them, and costs little beside what is measured."""
    import torch

    return sum(int(tensor.view(-1).view(torch.int64).sum()) for tensor in state.values()) % (1 << 64)


def work(path: str, how: str, site: str) -> None:
    """A process that loads: says `ready`, waits for a line, loads, touches every bit, says what it took."""
    import safetensors.torch
    import starlane.torch as st
    import torch

    torch.set_num_threads(1)
    os.environ["STARLANE_DIR"] = site
    inside = "starlane:///" + path.split("/mnt/")[-1]
    target: dict = {}
    if how == "load_into":
        with st.safe_open(path) as file:
            slices = [(name, file.get_slice(name)) for name in file.keys()]  # noqa: SIM118
            target = {name: torch.zeros(part.get_shape(), dtype=torch.bfloat16) for name, part in slices}
    if how.endswith("site"):
        from starlane import client

        client.shared()
    load = {"safetensors": lambda: safetensors.torch.load_file(path), "load_file": lambda: st.load_file(path),
            "load_file site": lambda: st.load_file(inside), "load_into": lambda: st.load_into(target, path),
            "torch.load": lambda: torch.load(path), "load": lambda: st.load(path)}[how]
    print("ready", flush=True)
    sys.stdin.readline()
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    got = load()
    loaded = time.perf_counter() - begin
    if how == "load_into":
        got = target
    total = bits_of(got)
    took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"took": took, "load": loaded, "bits": total, "peak": after.ru_maxrss * 1024,
                      "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}), flush=True)


def measure(path: pathlib.Path, how: str, site: str, size: int, before) -> dict:
    process = subprocess.Popen([sys.executable, __file__, "--work", str(path), "--how", how, "--site", site],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline() != "ready\n":
        sys.exit(f"{how} could not begin")
    before()
    common.touch_memory(2 * size)
    answer, _ = process.communicate("go\n")
    if process.returncode != 0:
        sys.exit(f"{how} failed on {path}")
    return json.loads(answer)


def state_of(size: int) -> dict:
    import torch

    rows = max(1, size // 32 // 8192)
    noise = torch.randint(-30000, 30000, (rows, 4096), dtype=torch.int16)
    return {f"block.{i}": noise.roll(i, 0).view(torch.bfloat16) for i in range(32)}


def saves(folder: pathlib.Path, local: pathlib.Path, state: dict, runs: int) -> list[list[str]]:
    import starlane.torch as st
    import torch

    ours, theirs = [], []
    for _ in range(runs):
        begin = time.perf_counter()
        torch.save(state, local / "save.pt")
        theirs.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        st.save(state, folder / "save.pt")
        ours.append(time.perf_counter() - begin)
        (folder / "save.pt").unlink()
        (local / "save.pt").unlink()
    ratio = statistics.median(a / b for a, b in zip(theirs, ours, strict=True))
    return [["starlane.torch.save, fsync, renamed", "mount", f"{statistics.median(ours):.2f} s", f"{ratio:.2f}",
             "torch.save to local memory (>= 0.8)"]]


def metadata(folder: pathlib.Path, tensors: int) -> list[list[str]]:
    import starlane.torch as st
    import torch

    path = folder / "moe.pt"
    torch.save({f"expert.{i}": torch.full((64,), float(i)) for i in range(tensors)}, path)
    rows = []
    for what, load in (("torch.load(mmap=True)", lambda: torch.load(path, mmap=True)), ("starlane.torch.load", lambda: st.load(path))):
        begin = time.perf_counter()
        load()
        took = (time.perf_counter() - begin) / tensors * 1e6
        rows.append([f"{tensors} tensors, {what}", "mount", f"{took:.0f} us", "", "a tensor (< 50)"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=common.bytes_of, default=common.GIB, help="of the checkpoint")
    parser.add_argument("--runs", type=int, default=3, help="rounds; medians are shown")
    parser.add_argument("--tensors", type=int, default=20_000, help="of the file with many small tensors")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--how", help=argparse.SUPPRESS)
    parser.add_argument("--site", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.how, options.site)
        return
    import safetensors.torch
    import torch

    site = common.Site(separate=False, passthrough=True)
    local = pathlib.Path(tempfile.mkdtemp(prefix="starlane-loading-local-", dir="/dev/shm"))
    try:
        state = state_of(options.size)
        rows = saves(site.path, local, state, options.runs) + metadata(site.path, options.tensors)
        bits = bits_of(state)
        files = {}
        for place in (site.path, local):
            safetensors.torch.save_file(state, place / "m.safetensors")
            torch.save(state, place / "m.pt")
            files[place] = (place / "m.safetensors", place / "m.pt")
        del state
        took: dict = {}
        directory = str(site.directory / "site")
        for _ in range(options.runs):
            for place, temperature in ((local, "local"), (site.path, "cold"), (site.path, "warm")):
                for how in READERS:
                    if place == local and how.endswith("site"):
                        continue
                    path = files[place][how in ("torch.load", "load")]
                    one = measure(path, how, directory, options.size, site.cold if temperature == "cold" else lambda: None)
                    if one["bits"] != bits:
                        sys.exit(f"{how} did not load what was saved: this is a fault, please report it")
                    took.setdefault((how, temperature), []).append(one)
        for (how, temperature), results in took.items():
            median = statistics.median(one["took"] for one in results)
            against = "torch.load" if how in ("load", "torch.load") else "safetensors"
            ratio = statistics.median(a["took"] / b["took"] for a, b in zip(took[against, temperature], results, strict=True))
            best = statistics.median(a["took"] / b["took"] for a, b in zip(took["safetensors", "local"], results, strict=True))
            cpu = statistics.median(one["cpu"] for one in results) / (options.size / 1e9)
            rows.append([how, temperature, f"{median:.2f} s", f"{ratio:.2f}", f"{against}, {temperature}; {best:.2f} x safetensors, "
                         f"local; {cpu:.2f} CPU s/GB; peak {max(one['peak'] for one in results) / options.size:.1f} x"])
        print(f"torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.size / common.GIB:.2f} GiB; "
              f"medians of {options.runs} runs; every bit touched\n")
        table = [["WHAT", "WHERE", "TOOK", "RATIO", "AGAINST"], *rows]
        widths = [max(len(row[i]) for row in table) for i in range(5)]
        for row in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    finally:
        site.remove()
        shutil.rmtree(local, ignore_errors=True)


if __name__ == "__main__":
    main()
