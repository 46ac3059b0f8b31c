#!/usr/bin/env python3
"""Large things: a directory of a million files (how fast the last are made beside the first, how soon a listing begins), many
gigabytes read through the mount, and the memory that each role took for it beside what its settings allow. Prints a table.

  bench/large.py                                a site of its own in /dev/shm, roles apart; about 10 GiB, ten minutes
  bench/large.py --files 100000 --read 8GiB     a tenth of it
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import report
import sites

PARTS = 20  # of the files; the first and the last are compared
FILE = 2 * report.GIB  # read again and again, each time from the store


def memory_of(pid: int) -> dict[str, int]:
    """Bytes by kind: RssAnon of its own, RssShmem in memory files (the arena, the node cache)."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in map(str.split, lines) if words and words[0].startswith("Rss")}


def budgets_of(site: sites.Site) -> dict[str, str]:
    """What its settings let a role keep."""
    lines = site.run("up", "--print-config").splitlines()
    value = {key.strip("# "): text.strip("'\" ") for key, _, text in (line.partition("=") for line in lines)}
    return {"meta": f"--meta-cache {value['meta-cache']}",
            "mount": f"--block-cache {value['block-cache']}, --dirty {value['dirty']}, --node-cache {value['node-cache']}"}


def create(folder: pathlib.Path, files: int) -> list[float]:
    """Files a second in each part."""
    folder.mkdir()
    rates = []
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for part in range(PARTS):
        begin = time.perf_counter()
        for number in range(part * files // PARTS, (part + 1) * files // PARTS):
            os.close(os.open(f"f{number:08}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=at))
        rates.append(files / PARTS / (time.perf_counter() - begin))
        print(f"created {(part + 1) * files // PARTS} of {files}, {rates[-1]:.0f} a second", file=sys.stderr)
    os.fsync(at)
    os.close(at)
    return rates


def listing(folder: pathlib.Path) -> tuple[float, float, int]:
    """Seconds to the first name and to the last, and how many there were."""
    begin = time.perf_counter()
    with os.scandir(folder) as entries:
        next(entries)
        first = time.perf_counter() - begin
        count = 1 + sum(1 for _ in entries)
    return first, time.perf_counter() - begin, count


def read_often(path: pathlib.Path, total: int) -> float:
    """Bytes a second; the kernel forgets what it has of the file before each pass."""
    noise = os.urandom(1 << 20)
    with open(path, "wb") as file:
        for _ in range(FILE // len(noise)):
            file.write(noise)
        os.fsync(file.fileno())
    begin, left = time.perf_counter(), total
    buffer = bytearray(1 << 20)
    while left > 0:
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while count := file.readinto(buffer):
                left -= count
    return (total - left) / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000, help="in one directory")
    parser.add_argument("--read", type=report.bytes_of, default=64 * report.GIB, help="bytes read through the mount")
    options = parser.parse_args()
    site = sites.Site(separate=True, passthrough=False)  # with passthrough the mount never sees the reads
    rows = []
    try:
        rates = create(site.path / "d", options.files)
        first, last = statistics.median(rates[:2]), statistics.median(rates[-2:])
        rows.append([f"create, {options.files} files in one directory", f"{last:.0f} a second at the end",
                     f"{last / first:.2f} of the beginning (> 0.8)"])
        grown = {"after creating": {name: memory_of(pid) for name, pid in site.roles().items()}}
        site.cold()
        begun, whole, count = listing(site.path / "d")
        if count != options.files:
            sys.exit(f"{count} files were listed of {options.files}: this is a fault, please report it")
        rows.append(["the same listed, cold", f"first name after {begun * 1000:.1f} ms (< 50)", f"all in {whole:.1f} s"])
        rate = read_often(site.path / "f", options.read)
        rows.append([f"read {options.read / report.GIB:.0f} GiB", f"{rate / 1e9:.2f} GB/s", ""])
        grown["after listing and reading"] = {name: memory_of(pid) for name, pid in site.roles().items()}
        allowed = budgets_of(site)
    finally:
        site.remove()
    for when, roles in grown.items():
        for name, memory in roles.items():
            shared = f"{memory['RssShmem'] / report.MIB:.0f} MiB in memory files"
            rows.append([f"memory of {name}, {when}", f"{memory['RssAnon'] / report.MIB:.0f} MiB of its own",
                         f"{shared}; {allowed[name]}" if name in allowed else shared])
    report.show(rows)


if __name__ == "__main__":
    main()
