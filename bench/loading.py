#!/usr/bin/env python3
"""starlane.torch beside what it replaces, with its goals: load_file, load_into and load from a Starlane mount, cold and warm, and
by the C interface, against safetensors and torch.load on the same mount and on a local file in memory, and against fastsafetensors
and Run:ai's streamer there, if they are installed; save against torch.save; the metadata of 20 000 tensors. Prints medians.
bench/checkpoint.py has more kinds of checkpoints, and several processes at once.

Run it with a Python that has torch and safetensors, on a quiet machine: .venv-torch/bin/python bench/loading.py [--size 1GiB]"""

import argparse
import pathlib
import statistics
import sys
import time

import loaders
import report
import sites
import torch
from memory import MemoryAtHand

import starlane.torch as st

WAYS = {"safetensors": ("safetensors", "starlane.load_file", "starlane.load_file by site", "starlane.load_into"),
        "pt": ("torch.load", "starlane.load")}


def saves(folder: pathlib.Path, local: pathlib.Path, state: loaders.State, runs: int) -> list[list[str]]:
    def timed(write, path: pathlib.Path) -> float:
        with MemoryAtHand(2 * loaders.size_of(state)):
            begin = time.perf_counter()
            write(state, path)
            took = time.perf_counter() - begin
        path.unlink()
        return took

    pairs = [(timed(torch.save, local / "save.pt"), timed(st.save, folder / "save.pt")) for _ in range(runs)]
    ratio = statistics.median(theirs / ours for theirs, ours in pairs)
    return [["starlane.save, fsync, renamed", "mount", f"{statistics.median(ours for _, ours in pairs):.2f} s", f"{ratio:.2f}",
             "torch.save to local memory (>= 0.8)"]]


def metadata(folder: pathlib.Path, local: pathlib.Path, tensors: int, runs: int) -> list[list[str]]:
    state = {f"expert.{i}": torch.full((64,), float(i)) for i in range(tensors)}
    ways = {"torch.load(mmap=True)": lambda path: torch.load(path, mmap=True), "starlane.load": st.load}

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
    for place in (folder, local):
        (place / "moe.pt").unlink()
    return rows


Taken = dict[tuple[str, str], list[loaders.Taken]]  # by way and where


def rounds(site: sites.Site, local: sites.Local, files: dict, state: loaders.State, runs: int) -> Taken:
    found: Taken = {}
    for number in range(runs):
        for where in ("local", "cold", "warm"):
            place, state_of_it = (local, "warm") if where == "local" else (site, where)
            for kind, ways in WAYS.items():
                for way in (*ways, *(loaders.OTHERS if where == "local" and kind == "safetensors" else ())):
                    if loaders.WAYS[way].by_site and where == "local":
                        continue
                    print(f"round {number + 1} of {runs}: {where} {way}", file=sys.stderr)
                    one = loaders.measure(way, files[kind, place], state, place, state=state_of_it)
                    found.setdefault((way, where), []).append(one)
    return found


def table_of(found: Taken) -> list[list[str]]:
    """Ratios are medians of those of each round; above 1 is faster."""
    def ratio(way: str, where: str, other: str, there: str) -> float:
        return statistics.median(a.took / b.took for a, b in zip(found[other, there], found[way, where], strict=True))

    best = min(loaders.OTHERS, key=lambda way: statistics.median(one.took for one in found[way, "local"]), default=None)
    rows = []
    for (way, where), results in found.items():
        against = "torch.load" if way in WAYS["pt"] else "safetensors"
        goal = " (> 1.2)" if (way, where) == ("starlane.load_file", "cold") else ""
        notes = [f"{against}, {where}{goal}"]
        if best and way.startswith("starlane.load_file"):
            notes.append(f"{ratio(way, where, best, 'local'):.2f} x {best}, local (> 0.6)")
        cpu = statistics.median(one.cpu for one in results) / (results[0].size / 1e9)
        peak = max(one.peak for one in results) / results[0].size
        notes.append(f"{cpu:.2f} CPU s/GB in the process, {peak:.1f} x the size in memory")
        rows.append([way, where, f"{statistics.median(one.took for one in results):.2f} s",
                     f"{ratio(way, where, against, where):.2f}", "; ".join(notes)])
    return rows


def run(options: argparse.Namespace, site: sites.Site, local: sites.Local) -> list[list[str]]:
    state = loaders.state_of(options.size)
    rows = saves(site.path, local.path, state, options.runs)
    rows += metadata(site.path, local.path, options.tensors, options.runs)
    for kind, ways in WAYS.items():
        loaders.import_for(kind, ways)
    files = {(kind, place): loaders.write(kind, state, place.path / kind) for kind in WAYS for place in (local, site)}
    return rows + table_of(rounds(site, local, files, state, options.runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=report.bytes_of, default=report.GIB, help="of the checkpoint")
    parser.add_argument("--runs", type=int, default=3, help="rounds; medians are shown")
    parser.add_argument("--tensors", type=int, default=20_000, help="of the file with many small tensors")
    parser.add_argument("--separate", action="store_true", help="the site's roles in processes of their own")
    parser.add_argument("--no-passthrough", action="store_true", help="the mount without the kernel's passthrough")
    options = parser.parse_args()
    local = sites.Local(sites.MEMORY)
    site = None
    try:
        site = sites.Site(separate=options.separate, passthrough=not options.no_passthrough)
        rows = run(options, site, local)
    finally:
        local.remove()
        if site is not None:
            site.remove()
    print(f"torch {torch.__version__}, {report.machine()}, {options.size / report.GIB:.2f} GiB; medians of {options.runs} rounds; "
          "until every byte was used\n")
    report.show([["WHAT", "WHERE", "TOOK", "RATIO", "AGAINST"], *rows])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; what it made is removed")
