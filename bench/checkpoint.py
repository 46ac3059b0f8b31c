#!/usr/bin/env python3
"""Checkpoints as they are loaded: torch.load, torch.load(mmap=True) with load_state_dict, safetensors, torch.distributed.checkpoint
and starlane's own, of one .pt, of safetensors shards with an index, of a DCP directory, and of models with 20 000 small tensors;
by one process and by eight at once; from a Starlane mount, cold and warm, beside memory (tmpfs) and the local disk. Times run until
every byte was used, and every bit is compared with what was saved. Prints medians of interleaved rounds, CPU seconds of all
processes, the bytes that came from the store and from the host's caches, and the peak of memory.

  .venv-torch/bin/python bench/checkpoint.py --quick      a minute or two (tools/python_venv makes that Python)
  .venv-torch/bin/python bench/checkpoint.py --chart loading.svg --json loading.json
  .venv-torch/bin/python bench/checkpoint.py --format pt --way 'torch.load mmap' --where mount --processes 1 --no-passthrough
  .venv-torch/bin/python bench/checkpoint.py --path /mnt/starlane/volumes/work --cold 'systemctl restart starlane'
"""

import argparse
import dataclasses
import json
import pathlib
import shutil
import signal
import statistics
import sys
import typing

import loaders
import report
import sites

from starlane import memory

TENSORS = 20_000  # of the models with many small ones
FORMATS = {"pt": ("pt", 0), "shards": ("shards", 0), "dcp": ("dcp", 0), "moe pt": ("pt", TENSORS),
           "moe shards": ("shards", TENSORS)}
WAYS = {"pt": ("torch.load", "torch.load mmap", "starlane.load"), "shards": ("safetensors", "starlane.load_file"),
        "dcp": ("dcp", "starlane.dcp")}
PLACES = (("memory", "warm"), ("disk", "cold"), ("disk", "warm"), ("mount", "cold"), ("mount", "warm"))
COLUMNS = ["FORMAT", "WAY", "WHERE", "PROCESSES", "SECONDS", "GB/s", "RATIO", "CPU s/GB", "STORE", "CACHES", "PEAK", "FAULTS"]
EXPLAINED = """ratio: how fast, beside the same from memory in the same round. CPU s/GB: of all processes, Starlane's too.
store, caches, peak: bytes that came from there, and of the largest process beyond its model, mapped files among them; each as
a multiple of the checkpoint's size. faults: page faults a GiB, of the process that had most."""


@dataclasses.dataclass(frozen=True)
class Row:
    format: str
    way: str
    where: str
    state: str
    processes: int


def tells_much(row: Row) -> bool:
    """For --quick."""
    if row.where == "disk" or row.format == "moe pt":
        return False
    return row.processes == 1 or (row.format in ("pt", "shards") and row.way != "torch.load" and
                                  (row.where, row.state) in (("memory", "warm"), ("mount", "cold")))


def rows_of(options: argparse.Namespace, name: str) -> list[Row]:
    """Those of one format that were asked for."""
    rows = [Row(name, way, where, state, processes) for processes in options.processes for where, state in PLACES
            for way in WAYS[FORMATS[name][0]] if way in options.way and where in options.where]
    return [row for row in rows if tells_much(row)] if options.quick else rows


def measure_format(options: argparse.Namespace, name: str, places: dict[str, typing.Any]) -> dict[Row, list[loaders.Taken]]:
    kind, tensors = FORMATS[name]
    loaders.import_for(kind, WAYS[kind])
    state = loaders.state_of(options.size, tensors)
    written = loaders.write(kind, state, places["memory"].path / "checkpoint")
    for where, place in places.items():
        if where != "memory":
            shutil.copytree(places["memory"].path / "checkpoint", place.path / "checkpoint")
    taken: dict[Row, list[loaders.Taken]] = {}
    for number in range(options.runs):
        for row in rows_of(options, name):
            print(f"round {number + 1} of {options.runs}:", *dataclasses.astuple(row), file=sys.stderr)
            path = places[row.where].path / written.relative_to(places["memory"].path)
            one = loaders.measure(row.way, path, state, places[row.where], state=row.state, processes=row.processes)
            taken.setdefault(row, []).append(one)
    for place in places.values():
        shutil.rmtree(place.path / "checkpoint")
    return taken


def median(values: typing.Iterable[float]) -> float:
    return statistics.median(values)


def line(row: Row, taken: dict[Row, list[loaders.Taken]]) -> list[str]:
    """Of the table. Ratios are medians of those of each round; above 1 is faster."""
    runs = taken[row]
    size = runs[0].size
    bytes_used = row.processes * size
    memory = taken.get(dataclasses.replace(row, where="memory", state="warm"))
    ratio = f"{median(there.took / here.took for here, there in zip(runs, memory, strict=True)):.2f}" if memory else ""
    fetched, cached = "", ""
    if all("fetched" in run.used for run in runs):
        from_store = median(run.used["fetched"] for run in runs)
        fetched, cached = f"{from_store / size:.2f}", f"{max(0.0, bytes_used - from_store) / size:.2f}"
    took = median(run.took for run in runs)
    cpu = median((run.cpu + run.used.get("site_cpu", 0.0)) / bytes_used * 1e9 for run in runs)
    return [row.format, row.way, f"{row.where}, {row.state}", str(row.processes), f"{took:.2f}", f"{bytes_used / took / 1e9:.2f}",
            ratio, f"{cpu:.2f}", fetched, cached, f"{max(run.peak for run in runs) / size:.2f}",
            f"{median(run.faults for run in runs) / size * report.GIB:.0f}"]


def draw(chart: pathlib.Path, taken: dict[Row, list[loaders.Taken]], about: str) -> None:
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for row, runs in taken.items():
        panel = f"{row.processes} process{'es' if row.processes > 1 else ''}: GB/s, all together"
        rate = row.processes * runs[0].size / median(run.took for run in runs) / 1e9
        panels.setdefault(panel, {}).setdefault(f"{row.format}\n{row.way}", {})[f"{row.where}, {row.state}"] = rate
    report.draw(chart, f"Checkpoints, until every byte was used\n{about}", panels)


def measure(options: argparse.Namespace) -> None:
    import torch

    places: dict[str, typing.Any] = {}
    taken: dict[Row, list[loaders.Taken]] = {}
    try:
        places["memory"] = sites.Local(sites.MEMORY)  # always: it is written there
        if "disk" in options.where and not options.quick:
            places["disk"] = sites.Local(options.disk)
        if "mount" in options.where:
            places["mount"] = (sites.Given(options.path, options.cold) if options.path else
                               sites.Site(separate=options.separate, passthrough=not options.no_passthrough))
        about = (f"torch {torch.__version__}, {report.machine()}, disk: {sites.kind_of(options.disk)}; mount: "
                 f"{'given' if options.path else 'roles apart' if options.separate else 'one process'}"
                 f"{', no passthrough' if options.no_passthrough else ''}; {options.size / report.GIB:.2f} GiB, medians of "
                 f"{options.runs} rounds")
        for name in filter(lambda name: rows_of(options, name), options.format):
            taken |= measure_format(options, name, places)
    finally:
        for place in places.values():
            place.remove()
    print(about + "\n")
    report.show([COLUMNS, *(line(row, taken) for row in taken)], right=tuple(range(3, len(COLUMNS))))
    print(f"\n{EXPLAINED}")
    if options.chart:
        draw(options.chart, taken, about)
    if options.json:
        rows = [{**dataclasses.asdict(row), "rounds": list(map(dataclasses.asdict, runs))} for row, runs in taken.items()]
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1))


def fitting(processes: int) -> int:
    """The largest size of which a model and a loaded copy a process fit, with what is stored and cached."""
    free = memory.available() or 4 * report.GIB
    size = 2 * report.GIB
    while size > 128 * report.MIB and size * (2 * processes + 8) > free:
        size //= 2
    return size


def main() -> None:
    ways = list(dict.fromkeys(way for group in WAYS.values() for way in group))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="0.5 GiB, one round, and of the rows those that tell most")
    parser.add_argument("--size", type=report.bytes_of, help="of a checkpoint, as 2GiB (default: what memory allows)")
    parser.add_argument("--runs", type=int, default=3, help="rounds; medians are shown")
    parser.add_argument("--format", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--way", nargs="+", choices=ways, default=ways)
    parser.add_argument("--where", nargs="+", choices=("memory", "disk", "mount"), default=["memory", "disk", "mount"])
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 8], help="that load at once")
    parser.add_argument("--disk", default=sites.DISK, help="a directory on the local disk")
    parser.add_argument("--separate", action="store_true", help="each role of the site a process")
    parser.add_argument("--no-passthrough", action="store_true", help="through the page cache only")
    parser.add_argument("--path", help="a directory on a mount that runs; needs --cold")
    parser.add_argument("--cold", help="command after which nothing of the mount is cached")
    parser.add_argument("--chart", type=pathlib.Path, help="a file to draw the medians into, as loading.svg")
    parser.add_argument("--json", type=pathlib.Path, help="a file for every round's figures")
    options = parser.parse_args()
    if bool(options.path) != bool(options.cold):
        parser.error("--path and --cold go together: a warm mount would measure the kernel")
    if min(options.processes + [options.runs]) < 1:
        parser.error("--processes and --runs are 1 or more")
    if not any(rows_of(options, name) for name in options.format):
        ways = "; ".join(f"{kind} is loaded by {', '.join(ways)}" for kind, ways in WAYS.items())
        parser.error("nothing is left to measure: " + ways)
    if options.quick:
        options.size, options.runs = options.size or report.GIB // 2, 1
    options.size = options.size or fitting(max(options.processes))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    measure(options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; what it made is removed")
