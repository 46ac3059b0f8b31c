#!/usr/bin/env python3
"""Real checkpoints: torch.load(mmap=True) with load_state_dict from a Starlane mount, cold, beside torch.load() on the
same mount and both on a local file system in memory; one process and many at once. Prints a table with ratios.

Run it with a Python that has torch >= 2.2:
  python bench/checkpoint.py                              a site of its own in /dev/shm, removed afterwards
  python bench/checkpoint.py --separate --no-passthrough  the same with its roles apart, through the page cache
  python bench/checkpoint.py --path /mnt/starlane/volumes/work --cold 'systemctl restart starlane'
"""

import argparse
import json
import math
import mmap
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = pathlib.Path(os.environ.get("STARLANE_BINARY", ROOT / "build/release/bin/starlane"))
LAYERS = 24
MIB, GIB = 1 << 20, 1 << 30


def make_model(size: int):
    """A transformer's parameters, 16 bits each, about `size` bytes in all; not initialised."""
    import torch

    width = max(64, int(math.sqrt(size / (LAYERS * 12 * 2))) // 64 * 64)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            like = {"dtype": torch.bfloat16}
            self.norm_1, self.norm_2 = torch.nn.LayerNorm(width, **like), torch.nn.LayerNorm(width, **like)
            self.query_key_value = torch.nn.utils.skip_init(torch.nn.Linear, width, 3 * width, **like)
            self.out = torch.nn.utils.skip_init(torch.nn.Linear, width, width, **like)
            self.up = torch.nn.utils.skip_init(torch.nn.Linear, width, 4 * width, **like)
            self.down = torch.nn.utils.skip_init(torch.nn.Linear, 4 * width, width, **like)

    return torch.nn.Sequential(*(Block() for _ in range(LAYERS)))


def bits_of(model) -> int:
    """A sum over every bit pattern: equal for equal parameters, and it touches all of them."""
    import torch

    return sum(int(p.detach().view(torch.int16).sum(dtype=torch.int64)) for p in model.parameters())


def fill(model) -> None:
    import torch

    torch.manual_seed(1)
    noise = torch.randn(1 << 20, dtype=torch.float32).to(torch.bfloat16)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            flat = parameter.view(-1)
            for at in range(0, flat.numel(), noise.numel()):
                piece = flat[at : at + noise.numel()]
                piece.copy_(noise.roll(number)[: piece.numel()])


def work(path: str, how: str, size: int) -> None:
    """A process that loads: says `ready`, waits for a line, loads, says what it took."""
    import torch

    model = make_model(size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # the model's memory is there before the clock starts
    print("ready", flush=True)
    sys.stdin.readline()
    faults = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    state = torch.load(path, mmap=how == "mmap", weights_only=True)
    loaded = time.perf_counter()
    model.load_state_dict(state)
    done = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"load": loaded - begin, "total": done - begin, "bits": bits_of(model),
                      "faults": after.ru_minflt + after.ru_majflt - faults.ru_minflt - faults.ru_majflt}), flush=True)


class Site:
    """A site of this program's own."""

    def __init__(self, separate: bool, passthrough: bool):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="starlane-checkpoint-", dir="/dev/shm"))
        self.options = ["--separate"] * separate + ["--no-passthrough"] * (not passthrough)
        self.process = None
        (self.directory / "mnt").mkdir()
        self.cold()
        self.run("volume", "create", "work")
        self.path = self.directory / "mnt/volumes/work"

    def run(self, *words: str) -> str:
        done = subprocess.run([str(BINARY), "--dir", str(self.directory / "site"), *words], capture_output=True,
                              text=True)
        if done.returncode != 0:
            sys.exit(done.stderr.strip())
        return done.stdout

    def cold(self) -> None:
        """Stops it and starts it: the mount goes, and all that was cached of it."""
        self.stop()
        self.process = subprocess.Popen(
            [str(BINARY), "--dir", str(self.directory / "site"), "up", "--mount", str(self.directory / "mnt"),
             "--store-dir", str(self.directory / "store"), *self.options], stdout=subprocess.PIPE,
            stderr=open(self.directory / "up.log", "a"), text=True)
        if not any(line.startswith("ready") for line in self.process.stdout):
            sys.exit("starlane did not start: " + (self.directory / "up.log").read_text()[-1000:])

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.process = None

    def fetched_bytes(self) -> int:
        """Read from the store since it started; the mount writes its figures once a second."""
        before = -1
        while True:
            time.sleep(1.3)
            status = json.loads(self.run("--json", "status"))
            now = status["roles"]["mount"]["figures"]["fetched_bytes"]
            if now == before:
                return now
            before = now

    def remove(self) -> None:
        try:
            self.stop()
        finally:
            subprocess.run(["umount", "-l", str(self.directory / "mnt")], capture_output=True)
            shutil.rmtree(self.directory, ignore_errors=True)


class Given:
    """A directory on a mount that somebody else runs."""

    def __init__(self, path: str, command: str):
        self.path, self.command = pathlib.Path(path), command

    def cold(self) -> None:
        subprocess.run(self.command, shell=True, check=True)
        deadline = time.monotonic() + 60
        while not self.path.is_dir():
            if time.monotonic() > deadline:
                sys.exit(f"{self.path} did not come back after: {self.command}")
            time.sleep(0.1)

    def fetched_bytes(self) -> None:
        return None

    def remove(self) -> None:
        pass


def touch_memory(size: int) -> None:
    """Uses so much memory and gives it back, so that a virtual machine has it at hand: see docs/performance.md."""
    with mmap.mmap(-1, size) as room:
        room.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, 4096):
            room[at] = 1


def load(path: pathlib.Path, how: str, size: int, processes: int, before=lambda: None) -> dict:
    """`processes` load at once; `before` runs when all are ready. The slowest counts."""
    running = [subprocess.Popen([sys.executable, __file__, "--work", str(path), "--how", how, "--size", str(size)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for process in running:
        if process.stdout.readline() != "ready\n":
            sys.exit("a process could not build the model; is there memory enough? Give a smaller --size")
    before()
    touch_memory(2 * size)
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in running]
    if any(process.returncode != 0 for process in running):
        sys.exit(f"torch could not load {path}")
    results = [json.loads(answer) for answer in answers]
    slowest = max(results, key=lambda result: result["total"])
    return {**slowest, "load": max(result["load"] for result in results), "all_bits": {r["bits"] for r in results}}


def save(path: pathlib.Path, size: int) -> tuple[float, int, int]:
    """Seconds of torch.save with fsync, the file's length, and the sum of its bits."""
    import torch

    model = make_model(size)
    fill(model)
    begin = time.perf_counter()
    torch.save(model.state_dict(), path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    return time.perf_counter() - begin, path.stat().st_size, bits_of(model)


def rounds(options, site, local: pathlib.Path, size: int, processes: int) -> list[list[str]]:
    """Rows of the table for one number of processes."""
    here = site.path / "checkpoint.pt"
    local_save, length, bits = save(local, size)
    save_took, _, _ = save(here, size)
    cases = {"mount, mmap": (here, "mmap"), "mount, plain": (here, "plain"), "local, mmap": (local, "mmap"),
             "local, plain": (local, "plain")}
    took = {name: [] for name in cases}
    fetched = None
    for _ in range(options.runs):
        for name, (path, how) in cases.items():
            result = load(path, how, size, processes, site.cold if path == here else lambda: None)
            if result["all_bits"] != {bits}:
                sys.exit(f"{path} was not loaded as it was saved: this is a fault of the file system, please report it")
            took[name].append(result)
            if name == "mount, mmap" and processes > 1:
                fetched = site.fetched_bytes()
    here.unlink()
    local.unlink()
    who = "1 process" if processes == 1 else f"{processes} processes"
    rows = [[f"torch.save, {length / GIB:.2f} GiB, fsync", "", seconds(save_took), rate(length, save_took),
             f"{local_save / save_took:.2f}", "torch.save to the local file"]] if processes == 1 else []
    plain_load = [result["load"] for result in took["mount, plain"]]
    for name, results in took.items():
        total = [result["total"] for result in results]
        how = "torch.load(mmap=True)" if "mmap" in name else "torch.load()"
        place = "mount, cold" if name.startswith("mount") else "local"
        if name == "mount, mmap":
            ratio = statistics.median(a / b for a, b in zip(plain_load, total))
            against = "torch.load() alone on the mount"
        else:
            reference = [result["total"] for result in took[name.replace("mount", "local")]]
            ratio = statistics.median(a / b for a, b in zip(reference, total))
            against = "the same from the local file"
        rows.append([f"{how} + load_state_dict, {who}", place, seconds(statistics.median(total)),
                     rate(length * processes, statistics.median(total)), f"{ratio:.2f}", against])
    both = statistics.median(a["total"] / b["total"] for a, b in zip(took["mount, plain"], took["mount, mmap"]))
    rows.append([f"  mmap against plain, {who}", "mount, cold", "", "", f"{both:.2f}", "both with load_state_dict"])
    if fetched is not None:
        rows.append([f"  bytes fetched / its size, {who}", "mount, cold", "", "", f"{fetched / length:.2f}", "<= 1.05"])
    faults = statistics.median(result["faults"] for result in took["mount, mmap"]) / (length / GIB)
    rows.append([f"  page faults a GiB, {who}", "mount, cold", f"{faults:.0f}", "", "", ""])
    return rows


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def rate(length: int, took: float) -> str:
    return f"{length / took / 1e9:.2f} GB/s"


def show(rows: list[list[str]]) -> None:
    table = [["WHAT", "WHERE", "TOOK", "RATE", "RATIO", "AGAINST"], *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.rjust(width) if i in (2, 3, 4) else cell.ljust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


def bytes_of(text: str) -> int:
    for suffix, factor in (("GiB", GIB), ("MiB", MIB)):
        if text.endswith(suffix):
            return int(float(text[:-3]) * factor)
    return int(text)


def available_memory() -> int:
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 4 * GIB


def fitting(processes: int) -> int:
    """Largest size of which a model and a loaded copy a process fit, with what is stored and cached."""
    size = 2 * GIB
    while size > 128 * MIB and size * (2 * processes + 5) > available_memory():
        size //= 2
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=bytes_of, help="of the checkpoint, as 2GiB (default: what memory allows)")
    parser.add_argument("--runs", type=int, default=3, help="rounds; medians are shown")
    parser.add_argument("--processes", type=int, default=8, help="that load at once in the second part; 1: no such part")
    parser.add_argument("--separate", action="store_true", help="each role of the site a process")
    parser.add_argument("--no-passthrough", action="store_true", help="through the page cache only")
    parser.add_argument("--path", help="a directory on a mount that runs; needs --cold")
    parser.add_argument("--cold", help="command after which nothing of the mount is cached")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--how", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.how, options.size)
        return
    if bool(options.path) != bool(options.cold):
        parser.error("--path and --cold go together: a warm mount would measure the kernel")
    if not options.path and not BINARY.exists():
        sys.exit(f"there is no {BINARY}; build it (./test does), or name one by STARLANE_BINARY")
    measure(options)


def measure(options) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    site = Given(options.path, options.cold) if options.path else Site(options.separate, not options.no_passthrough)
    local = pathlib.Path(tempfile.mkdtemp(prefix="starlane-checkpoint-local-", dir="/dev/shm"))
    try:
        rows = []
        for processes in sorted({1, options.processes}):
            rows += rounds(options, site, local / "checkpoint.pt", options.size or fitting(processes), processes)
        import torch

        print(f"torch {torch.__version__}, {os.cpu_count()} cores, kernel {os.uname().release}, load "
              f"{os.getloadavg()[0]:.1f}; " + ("roles apart" if options.separate else "one process") +
              (", no passthrough" if options.no_passthrough else "") + f"; medians of {options.runs} runs\n")
        show(rows)
    finally:
        site.remove()
        shutil.rmtree(local, ignore_errors=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; what it made is removed")
