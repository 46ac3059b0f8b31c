#!/usr/bin/env python3
"""starlane.torch beside what it replaces, as ratios in one run: load_file and load from a Starlane mount, cold and warm, against
safetensors and torch.load on the same mount and on a local file in memory, and against fastsafetensors and Run:ai's streamer
there, if they are installed; the C interface; save against torch.save; the metadata of 20 000 tensors. Prints a table.

Run it with a Python that has torch and safetensors, on a quiet machine: .venv-torch/bin/python bench/loading.py [--size 1GiB]"""

import argparse
import importlib.util
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
from memory import MemoryAtHand

sys.path.insert(0, str(common.ROOT / "python"))
SAFETENSORS = ("safetensors", "load_file", "load_file site", "load_into")
PICKLED = ("torch.load", "load")
ELSEWHERE = {"fastsafetensors": "fastsafetensors", "runai": "runai_model_streamer"}  # loaders of others, by module
ELSEWHERE = {how: module for how, module in ELSEWHERE.items() if importlib.util.find_spec(module)}


def bits_of(state: dict) -> int:
    """A sum over every bit, modulo 2^64: it touches all of them, and costs little beside what is measured."""
    import torch

    return sum(int(tensor.view(-1).view(torch.int64).sum()) for tensor in state.values()) % (1 << 64)


def fastsafetensors(path: str) -> dict:
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: [path]})
    buffers = loader.copy_files_to_device()
    return {name: buffers.get_tensor(name) for name in loader.get_keys()}


def runai(path: str) -> dict:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path)
        return dict(streamer.get_tensors())


def target_like(path: str) -> dict:
    """Zeros, with the names and shapes of the file."""
    import starlane.torch as st
    import torch

    with st.safe_open(path) as file:
        slices = [(name, file.get_slice(name)) for name in file.keys()]  # noqa: SIM118
        return {name: torch.zeros(part.get_shape(), dtype=torch.bfloat16) for name, part in slices}


def memory_of(what: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def work(path: str, how: str, site: str) -> None:
    """A process that loads: says `ready`, waits for a line, loads, touches every bit, says what it took."""
    import safetensors.torch
    import starlane.torch as st
    import torch
    from starlane import client

    torch.set_num_threads(1)
    os.environ["STARLANE_DIR"] = site
    target = target_like(path) if how == "load_into" else {}
    if how.endswith("site"):
        client.shared()
    inside = "starlane:///" + path.split("/mnt/")[-1]
    load = {"safetensors": lambda: safetensors.torch.load_file(path), "load_file": lambda: st.load_file(path),
            "load_file site": lambda: st.load_file(inside), "load_into": lambda: st.load_into(target, path) and target,
            "torch.load": lambda: torch.load(path), "load": lambda: st.load(path),
            "fastsafetensors": lambda: fastsafetensors(path), "runai": lambda: runai(path)}[how]
    print("ready", flush=True)
    sys.stdin.readline()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    held, before, begin = memory_of("VmRSS"), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    bits = bits_of(load())
    took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"took": took, "bits": bits, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                      "peak": memory_of("VmHWM") - held}), flush=True)


def measure(path: pathlib.Path, how: str, site: str, size: int, before) -> dict:
    process = subprocess.Popen([sys.executable, __file__, "--work", str(path), "--how", how, "--site", site],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline() != "ready\n":
        sys.exit(f"{how} could not begin")
    before()
    with MemoryAtHand(3 * size):
        answer, _ = process.communicate("go\n")
    if process.returncode != 0:
        sys.exit(f"{how} failed on {path}")
    return json.loads(answer)


def state_of(size: int) -> dict:
    import torch

    rows = max(1, size // 32 // 8192)
    noise = torch.randint(-30000, 30000, (rows, 4096), dtype=torch.int16)
    return {f"block.{i}": noise.roll(i, 0).view(torch.bfloat16) for i in range(32)}


def saves(folder: pathlib.Path, local: pathlib.Path, state: dict, size: int, runs: int) -> list[list[str]]:
    import starlane.torch as st
    import torch

    def timed(write, path: pathlib.Path) -> float:
        with MemoryAtHand(2 * size):
            begin = time.perf_counter()
            write(state, path)
            took = time.perf_counter() - begin
        path.unlink()
        return took

    pairs = [(timed(torch.save, local / "save.pt"), timed(st.save, folder / "save.pt")) for _ in range(runs)]
    ratio = statistics.median(theirs / ours for theirs, ours in pairs)
    return [["save, fsync, renamed", "mount", f"{statistics.median(ours for _, ours in pairs):.2f} s", f"{ratio:.2f}",
             "torch.save to local memory (>= 0.8)"]]


def metadata(folder: pathlib.Path, local: pathlib.Path, tensors: int, runs: int) -> list[list[str]]:
    import starlane.torch as st
    import torch

    state = {f"expert.{i}": torch.full((64,), float(i)) for i in range(tensors)}
    ways = {"torch.load(mmap=True)": lambda path: torch.load(path, mmap=True), "load": st.load}

    def timed(load, place: pathlib.Path) -> float:
        begin = time.perf_counter()
        load(place / "moe.pt")
        return (time.perf_counter() - begin) / tensors * 1e6

    for place in (folder, local):
        torch.save(state, place / "moe.pt")
    rows = []
    for what, load in ways.items():
        pairs = [(timed(load, folder), timed(load, local)) for _ in range(runs)]
        rows.append([f"{what}, {tensors} small tensors", "mount", f"{statistics.median(ours for ours, _ in pairs):.0f} us a tensor",
                     f"{statistics.median(there / ours for ours, there in pairs):.2f}", "local (< 50 us)"])
    return rows


def rounds(site: common.Site, files: dict, bits: int, size: int, runs: int) -> dict:
    """What each way took, by (way, where)."""
    took: dict = {}
    for number in range(runs):
        for where, ways in (("local", (*SAFETENSORS, *PICKLED, *ELSEWHERE)), ("cold", (*SAFETENSORS, *PICKLED)),
                            ("warm", (*SAFETENSORS, *PICKLED))):
            for how in ways:
                if where == "local" and how.endswith("site"):
                    continue
                print(f"round {number + 1} of {runs}: {where} {how}", file=sys.stderr)
                path = files["local" if where == "local" else "mount"][how in PICKLED]
                one = measure(path, how, str(site.directory / "site"), size, site.cold if where == "cold" else lambda: None)
                if one["bits"] != bits:
                    sys.exit(f"{how} did not load what was saved: this is a fault, please report it")
                took.setdefault((how, where), []).append(one)
    return took


def table_of(took: dict, size: int) -> list[list[str]]:
    """Ratios are medians of those of each round; above 1 is faster."""
    def ratio(how: str, where: str, other: str, there: str) -> float:
        return statistics.median(a["took"] / b["took"] for a, b in zip(took[other, there], took[how, where], strict=True))

    best = min(ELSEWHERE, key=lambda how: statistics.median(one["took"] for one in took[how, "local"]), default=None)
    rows = []
    for (how, where), results in took.items():
        against = "torch.load" if how in PICKLED else "safetensors"
        goal = " (> 1.2)" if (how, where) == ("load_file", "cold") else ""
        notes = [f"{against}, {where}{goal}"]
        if best and how.startswith("load_file"):
            notes.append(f"{ratio(how, where, best, 'local'):.2f} x {best}, local (> 0.6)")
        cpu = statistics.median(one["cpu"] for one in results) / (size / 1e9)
        peak = max(one["peak"] for one in results) / size
        notes.append(f"{cpu:.2f} CPU s/GB in the process, {peak:.1f} x the size in memory")
        rows.append([how, where, f"{statistics.median(one['took'] for one in results):.2f} s",
                     f"{ratio(how, where, against, where):.2f}", "; ".join(notes)])
    return rows


def run(options: argparse.Namespace, site: common.Site, local: pathlib.Path) -> list[list[str]]:
    import safetensors.torch
    import torch

    state = state_of(options.size)
    rows = saves(site.path, local, state, options.size, options.runs)
    rows += metadata(site.path, local, options.tensors, options.runs)
    files = {}
    for name, place in (("mount", site.path), ("local", local)):
        safetensors.torch.save_file(state, place / "m.safetensors")
        torch.save(state, place / "m.pt")
        files[name] = (place / "m.safetensors", place / "m.pt")
    bits = bits_of(state)
    del state
    return rows + table_of(rounds(site, files, bits, options.size, options.runs), options.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=common.bytes_of, default=common.GIB, help="of the checkpoint")
    parser.add_argument("--runs", type=int, default=3, help="rounds; medians are shown")
    parser.add_argument("--tensors", type=int, default=20_000, help="of the file with many small tensors")
    parser.add_argument("--separate", action="store_true", help="the site's roles in processes of their own")
    parser.add_argument("--no-passthrough", action="store_true", help="the mount without the kernel's passthrough")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--how", help=argparse.SUPPRESS)
    parser.add_argument("--site", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.how, options.site)
        return
    import torch

    site = common.Site(separate=options.separate, passthrough=not options.no_passthrough)
    local = pathlib.Path(tempfile.mkdtemp(prefix="starlane-loading-local-", dir="/dev/shm"))
    try:
        rows = run(options, site, local)
    finally:
        site.remove()
        shutil.rmtree(local, ignore_errors=True)
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.size / common.GIB:.2f} GiB; "
          f"medians of {options.runs} rounds; every bit touched\n")
    table = [["WHAT", "WHERE", "TOOK", "RATIO", "AGAINST"], *rows]
    widths = [max(len(row[i]) for row in table) for i in range(5)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
