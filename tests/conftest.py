"""What system tests share: a real site, started by the real binary, mounted by the kernel, in one process or with its
roles apart, and ways to hurt it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = pathlib.Path(os.environ.get("STARLANE_BINARY", ROOT / "build/release/bin/starlane"))


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--random-seconds", type=float, default=20, help="how long the random work of test_space.py takes in all")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; run by ./test --all")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: run by ./test --all"))


def kill_hard(pids) -> None:
    """kill -9 of processes and of their children, among which are daemons of mounts: none gets to stop well, as it does when
    its holder is gone, or to be restarted meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    children = [pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split() for pid in pids]
    killed = {*pids, *(int(child) for of in children for child in of)}
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    for pid in killed:
        wait_until(lambda pid=pid: is_dead(pid))


def is_dead(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


class Site:
    """A Starlane site in a directory of its own; `separate`: every role a process."""

    def __init__(self, directory: pathlib.Path, separate: bool = False, options: tuple = ()):
        self.directory = directory
        self.dir = directory / "site"
        self.mount = directory / "mnt"
        self.separate = separate
        self.options = list(options)
        self.process = None
        self.mount.mkdir(exist_ok=True)

    def up(self, *more: str, wait: bool = True) -> str:
        """Starts `starlane up`, waits for its `ready` line and returns it."""
        command = [str(BINARY), "up", "--dir", str(self.dir), "--mount", str(self.mount), *self.options, *more]
        if self.separate:
            command.append("--separate")
        self.log = open(self.directory / "up.log", "a")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        return self.wait_ready() if wait else ""

    def wait_ready(self) -> str:
        for line in self.process.stdout:
            if line.startswith("ready"):
                return line
        raise AssertionError(f"`up` ended with {self.process.wait()}: {(self.directory / 'up.log').read_text()[-2000:]}")

    def down(self, timeout: float = 60) -> int:
        """SIGTERM, and the exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout)
        self.process = None
        return code

    def run(self, *arguments: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess:
        done = subprocess.run([str(BINARY), "--dir", str(self.dir), *arguments], capture_output=True, text=True,
                              timeout=timeout)
        if check:
            assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done

    def json(self, *arguments: str):
        return json.loads(self.run("--json", *arguments).stdout)

    def volume(self, name: str = "work") -> pathlib.Path:
        """Makes a volume and answers its path on the mount."""
        self.run("volume", "create", name)
        path = self.mount / "volumes" / name
        wait_until(path.is_dir)
        return path

    def roles(self) -> dict:
        """Process ids of the roles, where they are apart."""
        return {k: v for k, v in json.loads((self.dir / "run/up.json").read_text())["children"].items() if v > 0}

    def kill(self, role: str) -> None:
        """kill -9 of a role, and waits until another process has its place."""
        pid = self.roles()[role]
        kill_hard([pid])
        wait_until(lambda: self.roles().get(role, pid) != pid)

    def kill_all(self) -> None:
        """kill -9 of everything at once."""
        victims = [self.process.pid, *(self.roles().values() if self.separate else ())]
        kill_hard(victims)
        self.process.wait()
        for pid in victims[1:]:
            wait_until(lambda pid=pid: not pathlib.Path(f"/proc/{pid}").exists())
        self.process = None

    def fsck(self) -> dict:
        return self.json("fsck")

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        subprocess.run(["umount", "-l", str(self.mount)], capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def wait_until(condition, seconds: float = 30, pause: float = 0.02):
    """Waits until the condition holds; a limit for tests that would hang, never a measure of speed."""
    end = time.monotonic() + seconds
    while True:
        try:
            value = condition()
        except (OSError, ValueError, KeyError):
            value = None
        if value:
            return value
        assert time.monotonic() < end, f"nothing came of it in {seconds} s"
        time.sleep(pause)


class Mount:
    """A second mount of a site, a process of its own, and the volume `work` in it. Left as a context it has to end well."""

    def __init__(self, site: Site, name: str = "mnt2", options: tuple = ()):
        self.path = site.directory / name
        self.path.mkdir()
        self.process = subprocess.Popen([str(BINARY), "--dir", str(site.dir), "mount", str(self.path), *options],
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().startswith("ready")
        self.volume = self.path / "volumes/work"
        wait_until(self.volume.is_dir, seconds=60)

    def __enter__(self) -> pathlib.Path:
        return self.volume

    def __exit__(self, *_) -> None:
        try:
            self.process.terminate()
            assert self.process.wait(60) == 0
        finally:
            self.end()

    def end(self) -> None:
        """Whatever has become of it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(60)
        subprocess.run(["umount", "-l", self.path], capture_output=True)


@pytest.fixture
def make_site():
    """make_site(separate=…, options=…): sites that are stopped and removed afterwards."""
    sites = []

    def make(separate: bool = False, options: tuple = ()) -> Site:
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        site = Site(pathlib.Path(tempfile.mkdtemp(prefix="starlane-test-", dir=base)), separate, options)
        sites.append(site)
        return site

    yield make
    for site in sites:
        site.clean_up()


@pytest.fixture(params=["one process", "roles apart"])
def site(request, make_site):
    """A running site, once each way."""
    one = make_site(separate=request.param == "roles apart")
    one.up()
    return one


@pytest.fixture(params=["one process", "roles apart"])
def mounts(request, make_site):
    """The volume `work` through two mounts."""
    site = make_site(separate=request.param == "roles apart")
    site.up()
    first = site.volume()
    with Mount(site) as second:
        yield first, second
        assert site.fsck()["problems"] == []
