#!/usr/bin/env python3
"""Names a second beside JuiceFS: create, stat, list and unlink of empty files by several processes, in one directory and many,
each durable by fsync of the directory. Both work in memory (/dev/shm) and take turns. JuiceFS keeps its names in Redis, without a
log on disk, and in BadgerDB inside its own process: the faster one counts. Prints medians and the ratio to it.

  bench/names_beside.py JUICEFS                       JUICEFS: path of its program, with redis-server installed
  bench/names_beside.py JUICEFS --shapes 8x64         8 processes in 64 directories only
"""

import argparse
import multiprocessing
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import sites

PHASES = ("create", "stat, uncached", "list, uncached", "unlink")


class Juice:
    """A JuiceFS of this program's own."""

    def __init__(self, program: pathlib.Path, engine: str):
        self.program, self.process, self.redis = program, None, None
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="starlane-juicefs-", dir="/dev/shm"))
        self.mount, self.log = self.directory / "mnt", open(self.directory / "log", "a")
        self.mount.mkdir()
        try:
            self.begin(engine)
        except BaseException:
            self.remove()
            raise

    def begin(self, engine: str) -> None:
        self.engine = f"badger://{self.directory}/badger"
        if engine == "redis":
            socket = self.directory / "socket"
            self.redis = self.start("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
                                    "--dir", self.directory)
            self.engine = f"unix://{socket}?db=0"
            self.wait(socket.exists, "Redis")
        self.run("format", "--storage", "file", "--bucket", f"{self.directory}/objects/", "--trash-days", "0", self.engine, "bench")
        self.cold()
        self.path = self.mount / "work"
        self.path.mkdir()

    def start(self, *words) -> subprocess.Popen:
        return subprocess.Popen(list(map(str, words)), stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def run(self, *words) -> None:
        if subprocess.run(list(map(str, [self.program, *words])), stdout=self.log, stderr=self.log).returncode != 0:
            self.fail(f"`juicefs {words[0]}`")

    def fail(self, what: str) -> None:
        sys.exit(f"{what} failed: " + (self.directory / "log").read_text()[-1000:])

    def wait(self, there, what: str) -> None:
        deadline = time.monotonic() + 30
        while not there():
            if time.monotonic() > deadline:
                self.fail(f"the start of {what}")
            time.sleep(0.02)

    def cold(self) -> None:
        """Mounts it anew; Redis stays as it is."""
        self.stop()
        self.process = self.start(self.program, "mount", "--no-usage-report", "--backup-meta", "0", "--cache-dir",
                                  self.directory / "cache", self.engine, self.mount)
        self.wait(self.mount.is_mount, "`juicefs mount`")

    def stop(self) -> None:
        if self.process is not None:
            self.run("umount", self.mount)
            self.process.wait(60)
            self.process = None

    def remove(self) -> None:
        try:
            self.stop()
        finally:
            subprocess.run(["umount", "-l", self.mount], capture_output=True)
            if self.redis is not None:
                self.redis.terminate()
                self.redis.wait(60)
            self.log.close()
            shutil.rmtree(self.directory, ignore_errors=True)


class Names:
    """What `processes` do at once to their share of `files` under a directory: in one directory, or each in its own."""

    def __init__(self, files: int, processes: int, directories: int):
        self.files, self.processes, self.directories = files, processes, directories

    def work(self, root: pathlib.Path, phase: int, mine: int) -> None:
        folders = [str(root / f"d{i}") for i in range(self.directories)]
        own = folders if self.directories == 1 else folders[mine :: self.processes]
        paths = [f"{folders[i % self.directories]}/f{i}" for i in range(mine, self.files, self.processes)]
        self.barrier.wait()
        begin = time.perf_counter()
        if PHASES[phase] == "create":
            for path in paths:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        elif PHASES[phase] == "unlink":
            for path in paths:
                os.unlink(path)
        elif PHASES[phase] == "stat, uncached":
            for path in paths:
                os.stat(path)
        elif sum(len(os.listdir(folder)) for folder in own) != len(paths) * (self.processes if self.directories == 1 else 1):
            raise RuntimeError(f"a listing under {root} was not whole")
        if PHASES[phase] in ("create", "unlink"):
            for folder in own:
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                os.fsync(fd)
                os.close(fd)
        self.spans.put((begin, time.perf_counter()))

    def rate(self, root: pathlib.Path, phase: int) -> float:
        fork = multiprocessing.get_context("fork")
        self.barrier, self.spans = fork.Barrier(self.processes), fork.Queue()
        running = [fork.Process(target=self.work, args=(root, phase, mine)) for mine in range(self.processes)]
        for process in running:
            process.start()
        for process in running:
            process.join()
        if any(process.exitcode != 0 for process in running):
            sys.exit(f"{PHASES[phase]} failed under {root}")
        spans = [self.spans.get() for _ in running]
        names = self.files * (self.processes if PHASES[phase].startswith("list") and self.directories == 1 else 1)
        return names / (max(end for _, end in spans) - min(begin for begin, _ in spans))

    def round(self, site) -> list[float]:
        for i in range(self.directories):
            (site.path / f"d{i}").mkdir()
        rates = []
        for phase, name in enumerate(PHASES):
            if name.endswith("uncached"):
                site.cold()
            rates.append(self.rate(site.path, phase))
        for i in range(self.directories):
            (site.path / f"d{i}").rmdir()
        return rates


def shape_of(text: str) -> tuple[int, int]:
    numbers = text.split("x")
    if len(numbers) != 2 or not all(n.isdigit() and int(n) > 0 for n in numbers):
        raise argparse.ArgumentTypeError(f"a shape is PROCESSESxDIRECTORIES such as 8x64, not {text}")
    if int(numbers[1]) != 1 and int(numbers[1]) % int(numbers[0]) != 0:
        raise argparse.ArgumentTypeError("directories are 1, or a multiple of the processes")
    return int(numbers[0]), int(numbers[1])


def show(shape: tuple[int, int], rates: dict[str, list[list[float]]]) -> None:
    print(f"\n{f'processes: {shape[0]}, directories: {shape[1]}':28}" + "".join(f"{name:>20}" for name in rates) + f"{'RATIO':>16}")
    for phase, name in enumerate(PHASES):
        medians = {who: statistics.median(round_[phase] for round_ in rounds) for who, rounds in rates.items()}
        best = max(value for who, value in medians.items() if who.startswith("JuiceFS"))
        ours = [value / best for who, value in medians.items() if who.startswith("Starlane")]
        ratios = " / ".join(f"{ratio:.2f}" for ratio in ours)
        print(f"{name:28}" + "".join(f"{value:20.0f}" for value in medians.values()) + f"{ratios:>16}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("juicefs", type=pathlib.Path, help="its program")
    parser.add_argument("--files", type=int, default=8000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shapes", type=shape_of, nargs="+", default=[(1, 1), (8, 1), (8, 64)], metavar="NxM",
                        help="processes x directories; directories: 1, or a multiple of the processes")
    options = parser.parse_args()
    if shutil.which(options.juicefs) is None:
        sys.exit(f"{options.juicefs} is not a program: give the path of juicefs (juicefs.com, community edition)")
    if shutil.which("redis-server") is None:
        sys.exit("redis-server is not installed: JuiceFS keeps its names in it here; `apt install redis-server`")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    systems: dict = {}
    try:
        for name, make in (("Starlane", sites.Site),
                           ("Starlane, apart", lambda: sites.Site(separate=True)),
                           ("JuiceFS, Redis", lambda: Juice(options.juicefs.resolve(), "redis")),
                           ("JuiceFS, Badger", lambda: Juice(options.juicefs.resolve(), "badger"))):
            systems[name] = make()
        for shape in options.shapes:
            names, rates = Names(options.files, *shape), {name: [] for name in systems}
            for _ in range(options.runs):
                for name, site in systems.items():
                    rates[name].append(names.round(site))
            show(shape, rates)
    finally:
        for site in systems.values():
            site.remove()
    print("\nnames a second; ratio: to the faster JuiceFS of the row")


if __name__ == "__main__":
    main()
