"""Where the programs of this folder measure: a site of their own, a mount that somebody else runs, and local file systems to hold
against it. Each place can be made cold, can be warmed, and says what it used."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = pathlib.Path(os.environ.get("STARLANE_BINARY", ROOT / "build/release/bin/starlane"))
MEMORY = "/dev/shm"
DISK = ROOT / "build"  # on the local file system, and git takes no notice of it
sys.path.insert(0, str(ROOT / "python"))

from starlane import metrics  # noqa: E402


def _read_all(folder: pathlib.Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)  # another process, as a user's would be


def kind_of(path: pathlib.Path) -> str:
    """The file system's, as ext4."""
    return subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True).stdout.strip()


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
        below = [int(child) for file in children for child in file.read_text().split()]
    except FileNotFoundError:
        return []
    return [pid, *(one for child in below for one in _family(child))]


def _cpu_seconds(pid: int) -> float:
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Local:
    """A directory of this program's own on a local file system."""

    def __init__(self, parent: str | os.PathLike[str]):
        pathlib.Path(parent).mkdir(parents=True, exist_ok=True)
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="starlane-bench-", dir=parent))

    def cold(self) -> None:
        """The kernel keeps nothing of its files; in memory they stay where they are."""
        for path in filter(pathlib.Path.is_file, self.path.rglob("*")):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def warm(self) -> None:
        _read_all(self.path)

    def meter(self) -> dict[str, float]:
        return {}

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class Site:
    """A site of this program's own, its store in memory."""

    def __init__(self, *, separate: bool = False, passthrough: bool = True):
        if not os.access(BINARY, os.X_OK):
            sys.exit(f"there is no program {BINARY}; build it (./test does), or name one by STARLANE_BINARY")
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="starlane-bench-", dir=MEMORY))
        self.site = self.directory / "site"
        self.options = ["--separate"] * separate + ["--no-passthrough"] * (not passthrough)
        self.process: subprocess.Popen[str] | None = None
        (self.directory / "mnt").mkdir()
        try:
            self.cold()
            self.run("volume", "create", "work")
        except BaseException:
            self.remove()
            raise
        self.path = self.directory / "mnt/volumes/work"

    def run(self, *words: str) -> str:
        done = subprocess.run([str(BINARY), "--dir", str(self.site), *words], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr.strip())
        return done.stdout

    def cold(self) -> None:
        """Stops it and starts it: the mount goes, and all that was cached of it."""
        self.stop()
        with open(self.directory / "up.log", "a") as log:
            self.process = subprocess.Popen(
                [str(BINARY), "--dir", str(self.site), "up", "--mount", str(self.directory / "mnt"), "--store-dir",
                 str(self.directory / "store"), *self.options], stdout=subprocess.PIPE, stderr=log, text=True)
        if not any(line.startswith("ready") for line in self.process.stdout or ()):
            sys.exit("starlane did not start: " + (self.directory / "up.log").read_text()[-1000:])

    def warm(self) -> None:
        _read_all(self.path)

    def meter(self) -> dict[str, float]:
        """Since its processes began: bytes that the mount read from the store, and their CPU seconds."""
        fetched = metrics.totals(self.site).get("starlane_client_store_get_bytes_total", 0.0)
        return {"fetched": fetched, "site_cpu": sum(map(_cpu_seconds, _family(self.process.pid))) if self.process else 0.0}

    def roles(self) -> dict[str, int]:
        """Their processes."""
        return {name: role["pid"] for name, role in json.loads(self.run("--json", "status"))["roles"].items()}

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.process = None

    def remove(self) -> None:
        try:
            self.stop()
        finally:
            subprocess.run(["umount", "-l", str(self.directory / "mnt")], capture_output=True)
            shutil.rmtree(self.directory, ignore_errors=True)


class Given(Local):
    """A directory of this program's own on a mount that somebody else runs, and the command that makes it cold."""

    def __init__(self, path: str, command: str):
        if not os.access(path, os.W_OK):
            sys.exit(f"{path} is no directory that can be written; give one in a volume of a mount that runs")
        super().__init__(path)
        self._command = command

    def cold(self) -> None:
        subprocess.run(self._command, shell=True, check=True)
        deadline = time.monotonic() + 60
        while not self.path.is_dir():
            if time.monotonic() > deadline:
                sys.exit(f"{self.path} did not come back after: {self._command}")
            time.sleep(0.1)
