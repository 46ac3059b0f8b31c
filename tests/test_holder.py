"""A mount that outlives its daemon: killed, stopped and replaced under a verified load. An application sees a pause, and
never an error or a wrong byte; what is expected is kept by the test itself, in the memory of other processes."""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import mmap
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import time

import pytest

from conftest import BINARY, wait_until
from local import link_followed, outcome

MIB = 1 << 20
STATIC_NAMES = 2500


def pattern(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def daemon_of(site) -> int:
    return json.loads((site.dir / "run/mount.json").read_text())["pid"]


def is_mounted(site) -> bool:
    return f" {site.mount} " in pathlib.Path("/proc/self/mountinfo").read_text()


# ---- The load: each a process, which ends when it is told to and says what it has done ----


class Reader:
    """read() and mmap, of files in the page cache and not."""

    def __init__(self, directory):
        self.files = [(directory / f"r{n}", n, size) for n, size in enumerate([5000, 3 * MIB, 80 * MIB])]

    def prepare(self):
        for path, seed, size in self.files:
            path.write_bytes(pattern(seed, size))
        self.digests = {path: hashlib.sha256(pattern(seed, size)).digest() for path, seed, size in self.files}
        self.held = open(self.files[2][0], "rb")  # open all the time
        self.map = mmap.mmap(self.held.fileno(), 0, prot=mmap.PROT_READ)
        self.reference = pattern(2, 80 * MIB)

    def step(self, rng):
        at = rng.randrange(80 * MIB - 70000)
        assert self.map[at : at + 70000] == self.reference[at : at + 70000]
        path, _, _ = self.files[rng.randrange(3)]
        with open(path, "rb") as file:
            if rng.random() < 0.5:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if rng.random() < 0.5:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                assert hashlib.sha256(mapped).digest() == self.digests[path]
                mapped.close()
            else:
                assert hashlib.sha256(file.read()).digest() == self.digests[path]


class Writer:
    """Files in pieces, over each other, with and without fsync; read while they are written."""

    def __init__(self, directory):
        self.directory = directory
        self.closed = {}

    def prepare(self):
        pass

    def step(self, rng):
        number = rng.randrange(20)
        path = self.directory / f"w{number}"
        content = bytearray(self.closed.get(number, b""))
        with open(path, "r+b" if number in self.closed else "w+b", buffering=0) as file:
            for _ in range(rng.randrange(1, 12)):
                at = rng.randrange(len(content) + 1)
                piece = rng.randbytes(rng.choice([1, 700, 5000, 70_000, 700_000]))
                content[at : at + len(piece)] = piece
                assert os.pwrite(file.fileno(), piece, at) == len(piece)
                if rng.random() < 0.2:
                    os.fsync(file.fileno())
                if rng.random() < 0.1:
                    content = content[: rng.randrange(len(content) + 1)]
                    os.ftruncate(file.fileno(), len(content))
                if rng.random() < 0.3:
                    assert os.fstat(file.fileno()).st_size == len(content)
                    assert os.pread(file.fileno(), len(content) + 1, 0) == content
        self.closed[number] = bytes(content)
        check = rng.choice(list(self.closed))
        assert (self.directory / f"w{check}").read_bytes() == self.closed[check]


class Appender:
    """Every record once, in order."""

    def __init__(self, directory):
        self.path = directory / "appended"
        self.count = 0

    @staticmethod
    def record(number: int) -> bytes:
        return b"%012d" % number * (1 + number % 40) + b"\n"

    def prepare(self):
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def step(self, rng):
        for _ in range(rng.randrange(1, 20)):
            record = self.record(self.count)
            assert os.write(self.fd, record) == len(record)
            self.count += 1
        if rng.random() < 0.1:
            os.fsync(self.fd)
        if rng.random() < 0.1:
            assert self.path.read_bytes() == b"".join(self.record(n) for n in range(self.count))

    def finish(self):
        assert self.path.read_bytes() == b"".join(self.record(n) for n in range(self.count))


class Names:
    """Exclusive creates, renames, links and removals, against a model of the directory."""

    def __init__(self, directory):
        self.directory = directory / "names"
        self.model = {}  # name: content

    def prepare(self):
        self.directory.mkdir()

    def step(self, rng):
        name = f"n{rng.randrange(40)}"
        path = self.directory / name
        choice = rng.random()
        if name not in self.model:
            content = rng.randbytes(30)
            with open(path, "xb") as file:
                file.write(content)
            self.model[name] = content
        elif choice < 0.3:
            path.unlink()
            del self.model[name]
        elif choice < 0.7:
            other = f"n{rng.randrange(40)}"
            path.rename(self.directory / other)
            self.model[other] = self.model.pop(name)
        elif choice < 0.8 and name + "l" not in self.model:
            os.link(path, self.directory / (name + "l"))
            self.model[name + "l"] = self.model[name]
        elif name + "l" in self.model:
            (self.directory / (name + "l")).unlink()
            del self.model[name + "l"]
        if rng.random() < 0.2:
            (self.directory / "d").mkdir()
            (self.directory / "d").rmdir()
        if rng.random() < 0.2:
            self.finish()

    def finish(self):
        assert sorted(os.listdir(self.directory)) == sorted(self.model)
        for name, content in self.model.items():
            assert (self.directory / name).read_bytes() == content, name


class Unlinked:
    """Open files without a name, and what was written to them without ever being closed."""

    def __init__(self, directory):
        self.directory = directory
        self.open = []

    def prepare(self):
        pass

    def step(self, rng):
        if len(self.open) < 15:
            path = self.directory / f"u{rng.randrange(1 << 40)}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            self.open.append((fd, bytearray()))
            if rng.random() < 0.5:
                os.write(fd, b"x" * 100)
                self.open[-1][1].extend(b"x" * 100)
            path.unlink()
        fd, content = rng.choice(self.open)
        piece = rng.randbytes(rng.choice([10, 5000, 200_000]))
        at = rng.randrange(len(content) + 1)
        os.pwrite(fd, piece, at)
        content[at : at + len(piece)] = piece
        assert os.pread(fd, len(content) + 1, 0) == content
        if rng.random() < 0.1:
            os.close(fd)
            self.open = [one for one in self.open if one[0] != fd]

    def finish(self):
        for fd, content in self.open:
            assert os.pread(fd, len(content) + 1, 0) == content
            assert os.fstat(fd).st_nlink == 0


class Lister:
    """A listing that is interrupted again and again shows each name that was there all the time once."""

    def __init__(self, directory):
        self.directory = directory / "many"

    def prepare(self):
        self.directory.mkdir()
        self.names = {f"{n * 7919 % 100_003:06d}-static" for n in range(STATIC_NAMES)}
        for name in self.names:
            (self.directory / name).touch()

    def step(self, rng):
        passing = self.directory / f"{rng.randrange(100_003):06d}-passing"
        passing.touch()
        seen = []
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.endswith("-static"):
                    seen.append(entry.name)
                if rng.random() < 0.005:
                    time.sleep(0.01)
                    passing.unlink(missing_ok=True)
        passing.unlink(missing_ok=True)
        assert len(seen) == len(set(seen)), "twice"
        assert set(seen) == self.names


class Allocator:
    """Holes, zeros, room and copies: done twice, each is as if it had been done once."""

    KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16

    def __init__(self, directory):
        self.directory = directory
        self.libc = ctypes.CDLL(None, use_errno=True)

    def prepare(self):
        self.fds = [os.open(self.directory / f"a{n}", os.O_RDWR | os.O_CREAT) for n in range(2)]
        self.models = [bytearray(), bytearray()]

    def allocate(self, fd, mode, at, length):
        done = self.libc.fallocate(fd, mode, ctypes.c_long(at), ctypes.c_long(length))
        assert done == 0, os.strerror(ctypes.get_errno())

    def step(self, rng):
        n = rng.randrange(2)
        fd, model = self.fds[n], self.models[n]
        at, length = rng.randrange(5 * MIB), rng.randrange(1, MIB)
        choice = rng.randrange(5)
        within = max(0, min(length, len(model) - at))
        if choice == 0:
            data = rng.randbytes(length)
            assert os.pwrite(fd, data, at) == length
            model.extend(bytes(max(0, at - len(model))))
            model[at : at + length] = data
        elif choice == 1:
            self.allocate(fd, 0, at, length)
            model.extend(bytes(max(0, at + length - len(model))))
        elif choice == 2:
            self.allocate(fd, self.PUNCH_HOLE | self.KEEP_SIZE, at, length)
            model[at : at + within] = bytes(within)
        elif choice == 3:
            self.allocate(fd, self.ZERO_RANGE, at, length)
            model.extend(bytes(max(0, at + length - len(model))))
            model[at : at + length] = bytes(length)
        elif within:
            assert os.copy_file_range(fd, self.fds[1 - n], within, at, at) == within
            other = self.models[1 - n]
            other.extend(bytes(max(0, at - len(other))))
            other[at : at + within] = model[at : at + within]
        if rng.random() < 0.2:
            self.finish()

    def finish(self):
        for fd, model in zip(self.fds, self.models):
            assert os.pread(fd, len(model) + 1, 0) == model


LOADS = [Reader, Writer, Appender, Names, Unlinked, Lister, Allocator]


def run_load(kind, directory, seed, ready, stop, results):
    rng = random.Random(seed)
    steps, longest = 0, 0.0
    try:
        load = kind(directory)
        load.prepare()
        ready.release()
        while not stop.is_set():
            started = time.monotonic()
            load.step(rng)
            longest = max(longest, time.monotonic() - started)
            steps += 1
        getattr(load, "finish", lambda: None)()
        results.put((kind.__name__, steps, longest, None))
    except BaseException as error:  # told to the test
        ready.release()
        import traceback

        results.put((kind.__name__, steps, longest, traceback.format_exc()[-1500:]))


class Loads:
    def __init__(self, directory, seed):
        self.stop, self.results = multiprocessing.Event(), multiprocessing.Queue()
        ready = multiprocessing.Semaphore(0)
        print(f"seed {seed}")
        self.processes = [
            multiprocessing.Process(target=run_load, args=(kind, directory, seed + n, ready, self.stop, self.results))
            for n, kind in enumerate(LOADS)
        ]
        for process in self.processes:
            process.start()
        for _ in self.processes:
            assert ready.acquire(timeout=120)

    def end(self) -> None:
        self.stop.set()
        outcomes = [self.results.get(timeout=180) for _ in self.processes]
        for process in self.processes:
            process.join(60)
        for kind, steps, longest, error in outcomes:
            print(f"{kind}: {steps} steps, the longest {longest:.2f} s")
        for kind, steps, _, error in outcomes:
            assert error is None, f"{kind} after {steps} steps: {error}"
            assert steps > 2, kind


def kill_daemon(site, number=signal.SIGKILL) -> float:
    """Until another one has answered: how long that took."""
    pid = daemon_of(site)
    started = time.monotonic()
    os.kill(pid, number)
    os.statvfs(site.mount)  # which the kernel does not answer by itself
    stall = time.monotonic() - started
    wait_until(lambda: daemon_of(site) != pid)
    return stall


@pytest.mark.parametrize("separate", [False, True], ids=["one process", "roles apart"])
def test_a_killed_daemon_is_a_pause(make_site, separate):
    site = make_site(separate=separate)
    site.up()
    directory = site.volume()
    rng = random.Random(os.urandom(8))
    loads = Loads(directory, rng.randrange(1 << 30))
    stalls = []
    for _ in range(12 if not separate else 24):
        time.sleep(rng.uniform(0.05, 0.6))
        stalls.append(kill_daemon(site))
    loads.end()
    print(f"stalls: median {sorted(stalls)[len(stalls) // 2]:.2f} s, longest {max(stalls):.2f} s")
    assert site.fsck()["problems"] == []
    assert site.down() == 0
    assert not is_mounted(site)


def may_lock(path, how) -> bool:
    """Whether another process gets the lock at once."""

    def ask(answer):
        with open(path, "r+b") as file:
            try:
                how(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                answer.put(True)
            except BlockingIOError:
                answer.put(False)

    answer = multiprocessing.Queue()
    process = multiprocessing.Process(target=ask, args=(answer,))
    process.start()
    process.join(60)
    return answer.get(timeout=1)


@pytest.mark.parametrize("how", [fcntl.flock, fcntl.lockf], ids=["flock", "fcntl"])
def test_locks_outlive_the_daemon(make_site, how):
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    path = directory / "locked"
    path.touch()
    locked, got = multiprocessing.Event(), multiprocessing.Event()

    def wait():
        locked.wait()
        with open(path, "r+b", buffering=0) as other:
            how(other, fcntl.LOCK_EX)
            got.set()

    waiter = multiprocessing.Process(target=wait)
    waiter.start()  # before the file is opened: what a child inherits goes on holding a flock
    with open(path, "r+b", buffering=0) as file:
        how(file, fcntl.LOCK_EX)
        locked.set()
        time.sleep(0.3)
        for _ in range(2):
            kill_daemon(site)
            assert not may_lock(path, how)
        assert file.write(b"under the lock") == 14  # not as if it had been lost
        assert not got.is_set()
    assert got.wait(30)
    waiter.join(30)
    assert may_lock(path, how)  # the waiter's close gave it up


def test_a_file_without_a_name_outlives_the_daemon(make_site):
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    content = os.urandom(3 * MIB)
    fds = [os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600) for _ in range(2)]
    for fd in fds:
        os.write(fd, content)
    kill_daemon(site)
    time.sleep(3)  # heartbeats have told the server what is held
    for fd in fds:
        assert os.fstat(fd).st_nlink == 0
        assert os.pread(fd, len(content) + 1, 0) == content
    link_followed(f"/proc/self/fd/{fds[0]}", directory / "named")
    kill_daemon(site)
    for fd in fds:
        os.pwrite(fd, b"end", len(content))
        os.close(fd)
    assert (directory / "named").read_bytes() == content + b"end"
    assert os.listdir(directory) == ["named"]
    assert site.fsck()["problems"] == []


def test_a_descriptor_that_only_writes_outlives_the_daemon(make_site):
    site = make_site(separate=True)
    site.up()
    path = site.volume() / "written"
    pieces = [os.urandom(MIB + 17) for _ in range(4)]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    for piece in pieces:
        assert os.write(fd, piece) == len(piece)
        kill_daemon(site)
        os.setxattr(path, "user.a", piece[:20])  # its request is read as INIT settled it
    os.close(fd)
    assert path.read_bytes() == b"".join(pieces)
    assert os.getxattr(path, "user.a") == pieces[-1][:20]


def test_attributes_of_dirty_files_outlive_the_daemon(make_site):
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    content = os.urandom(9000)
    fds = {}
    for number in range(50):
        path = directory / f"f{number}"
        fds[path] = fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, content)
        os.utime(fd, ns=(10**9, 2 * 10**9 + number))
        os.fchown(fd, 3_000_000_000, 7)
        os.fchmod(fd, 0o4750)
    kill_daemon(site)
    for closed in (False, True):
        for number, (path, fd) in enumerate(fds.items()):
            at = path.stat()
            assert (at.st_mode, at.st_uid, at.st_gid, at.st_size) == (0o104750, 3_000_000_000, 7, len(content))
            assert (at.st_atime_ns, at.st_mtime_ns) == (10**9, 2 * 10**9 + number)
            if not closed:
                os.close(fd)
    for path in fds:
        assert path.read_bytes() == content
    assert site.fsck()["problems"] == []


@pytest.mark.parametrize("separate", [False, True], ids=["one process", "roles apart"])
def test_a_stopped_daemon_is_replaced(make_site, separate):
    site = make_site(separate=separate, options=("--hang-limit-ms", "1500"))
    site.up()
    directory = site.volume()
    loads = Loads(directory, random.randrange(1 << 30))
    for _ in range(3):
        time.sleep(0.5)
        print(f"stall {kill_daemon(site, signal.SIGSTOP):.2f} s")
    loads.end()
    roles = site.json("status")["roles"]
    assert "daemon 4, after signal 9" in roles["mount"]["figures"]["holder"]


def test_a_machine_that_stood_still_kills_nobody(make_site):
    site = make_site(separate=True, options=("--hang-limit-ms", "1500"))
    site.up()
    directory = site.volume()
    daemon, holder = daemon_of(site), site.roles()["mount"]
    for pid in (holder, daemon):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(holder, signal.SIGCONT)  # the worst order
    time.sleep(0.7)
    os.kill(daemon, signal.SIGCONT)
    (directory / "f").write_bytes(b"served")
    time.sleep(2)
    assert daemon_of(site) == daemon


def blocked_read(site, directory):
    """A process whose read waits for a store that is away, and what it will say of it. Direct: of a failed read-ahead the
    kernel says nothing, but asks anew."""
    path = directory / "far"
    with open(path, "wb") as file:
        file.write(pattern(7, 3 * MIB))
        os.fsync(file.fileno())
    kill_daemon(site)  # and with it what it had in memory
    store = site.roles()["store"]
    os.kill(store, signal.SIGSTOP)
    outcome = multiprocessing.Queue()

    def read():
        buffer = mmap.mmap(-1, 4096)
        try:
            os.preadv(os.open(path, os.O_RDONLY | os.O_DIRECT), [buffer], MIB)
            outcome.put(bytes(buffer))
        except OSError as error:
            outcome.put(error.errno)

    process = multiprocessing.Process(target=read)
    process.start()
    return process, outcome, store


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=["killed", "crashed"])
def test_a_request_that_crashes_every_daemon_is_given_up(make_site, number):
    """Crashes are made here from outside, while the request is being served. kill -9 is nobody's fault."""
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    process, outcome, store = blocked_read(site, directory)
    for _ in range(4):
        time.sleep(0.5)
        if not process.is_alive():
            break
        kill_daemon(site, number)
    if number == signal.SIGSEGV:
        assert outcome.get(timeout=30) == errno.EIO
        assert "event=request_given_up" in (site.dir / "log/mount.log").read_text()
    os.kill(store, signal.SIGCONT)
    if number == signal.SIGKILL:
        assert outcome.get(timeout=60) == pattern(7, 3 * MIB)[MIB : MIB + 4096]
    process.join(30)
    assert (directory / "far").read_bytes() == pattern(7, 3 * MIB)


@pytest.mark.parametrize("separate", [False, True], ids=["one process", "roles apart"])
def test_a_stop_between_two_daemons_stores_and_unmounts(make_site, separate):
    site = make_site(separate=separate)
    content = b""
    for n in range(4):
        site.up()
        directory = site.mount / "volumes/work" if n else site.volume()
        wait_until(directory.is_dir)
        fd = os.open(directory / "f", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        assert os.pread(fd, 10_000, 0) == content
        os.write(fd, b"%d and more" % n)  # neither closed nor synced
        content += b"%d and more" % n
        os.kill(daemon_of(site), signal.SIGKILL)
        time.sleep(random.uniform(0, 0.15))
        assert site.down() == 0
        assert not is_mounted(site)
        with contextlib.suppress(OSError):
            os.close(fd)


def test_a_stop_while_a_daemon_waits_for_the_server_leaves_no_dead_mount(make_site):
    site = make_site(separate=True)
    site.up()
    site.volume()
    meta = site.roles()["meta"]
    os.kill(meta, signal.SIGSTOP)
    os.kill(daemon_of(site), signal.SIGKILL)
    time.sleep(0.5)
    site.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_mounted(site))
    os.kill(meta, signal.SIGCONT)
    assert site.process.wait(60) == 0
    assert os.listdir(site.mount) == []


def test_a_daemon_goes_on_without_its_metrics(make_site):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1] + 1
    site = make_site(separate=True, options=("--metrics", str(port)))
    site.up()
    directory = site.volume()
    meta, daemon = site.roles()["meta"], daemon_of(site)
    os.kill(meta, signal.SIGSTOP)
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not pathlib.Path(f"/proc/{daemon}").exists())
    with socket.create_server(("127.0.0.1", port + 3)):  # where the mount's were
        os.kill(meta, signal.SIGCONT)
        (directory / "f").write_bytes(b"served")
        wait_until(lambda: "event=no_console" in (site.dir / "log/mount.log").read_text())
    assert (directory / "f").read_bytes() == b"served"


@pytest.mark.parametrize("separate", [False, True], ids=["one process", "roles apart"])
def test_an_upgrade_under_load(make_site, separate, tmp_path):
    site = make_site(separate=separate)
    site.up()
    directory = site.volume()
    loads = Loads(directory, random.randrange(1 << 30))
    builds = []
    for n in range(4):
        builds.append(tmp_path / f"starlane-{n}")
        shutil.copy(BINARY, builds[-1])
        time.sleep(0.5)
        started = time.monotonic()
        site.run("upgrade", str(builds[-1]))
        print(f"upgrade: {time.monotonic() - started:.2f} s")
        wait_until(lambda: os.readlink(f"/proc/{daemon_of(site)}/exe") == str(builds[-1]))
    for build in builds:
        build.unlink()
    kill_daemon(site)  # the newest goes on although its file is gone
    loads.end()
    assert site.fsck()["problems"] == []


def test_a_build_that_does_not_run_is_refused(make_site, tmp_path):
    site = make_site()
    site.up()
    directory = site.volume()
    pid = daemon_of(site)
    script = tmp_path / "starlane"
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o755)
    refused = site.run("upgrade", str(script), check=False)
    assert refused.returncode == 1 and "does not run here" in refused.stderr
    script.write_text("#!/bin/sh\ncase $1 in --version) exit 0;; *) exit 3;; esac\n")
    with open(directory / "f", "wb", buffering=0) as file:
        file.write(b"before")
        refused = site.run("upgrade", str(script), check=False)
        assert refused.returncode == 1 and "the old one goes on" in refused.stderr
        file.write(b" and after")
    assert (directory / "f").read_bytes() == b"before and after"
    wait_until(lambda: daemon_of(site) != pid)  # it says so of itself a little later
    assert site.run("upgrade", "--mount", str(tmp_path), check=False).returncode == 1


@pytest.mark.parametrize("separate", [False, True], ids=["one process", "roles apart"])
def test_a_killed_holder_ends_all_of_it(make_site, separate):
    site = make_site(separate=separate)
    site.up()
    directory = site.volume()
    fd = os.open(directory / "synced", os.O_RDWR | os.O_CREAT)
    data = os.urandom(3 * MIB)
    os.write(fd, data)
    os.fsync(fd)
    daemon = daemon_of(site)
    os.kill(site.roles()["mount"] if separate else site.process.pid, signal.SIGKILL)
    wait_until(lambda: not pathlib.Path(f"/proc/{daemon}").exists())
    with pytest.raises(OSError):
        os.write(fd, b"more")
        os.fsync(fd)
    with contextlib.suppress(OSError):
        os.close(fd)
    if separate:  # `up` starts another holder
        wait_until(lambda: daemon_of(site) != daemon and directory.is_dir())
    else:
        assert not is_mounted(site)
        site.process.wait()
        site.up()
    assert (directory / "synced").read_bytes()[: len(data)] == data


def test_without_a_holder_the_mount_ends_with_its_process(make_site):
    site = make_site(separate=True, options=("--no-hold",))
    site.up()
    site.volume()
    assert site.json("status")["roles"]["mount"]["figures"]["holder"].startswith("off")
    refused = site.run("upgrade", check=False)
    assert refused.returncode == 1 and "has no holder" in refused.stderr


def test_a_mount_waits_for_a_server_that_is_away_when_its_daemon_is_killed(make_site):
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    with open(directory / "f", "wb", buffering=0) as file:
        file.write(b"acknowledged")
        meta = site.roles()["meta"]
        os.kill(meta, signal.SIGSTOP)
        os.kill(daemon_of(site), signal.SIGKILL)
        time.sleep(1)
        os.kill(meta, signal.SIGCONT)
        file.write(b", and more")
        os.fsync(file.fileno())
    assert (directory / "f").read_bytes() == b"acknowledged, and more"


def test_a_failure_that_nobody_was_told_of_is_told_after_a_takeover(make_site):
    site = make_site()
    site.up()
    path = site.volume() / "f"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"before")
    os.fsync(fd)
    subprocess.run(["chattr", "+i", path], check=True)
    os.pwrite(fd, b"refused", 100)  # the server has the last word, and says it in the background
    wait_until(lambda: os.fstat(fd).st_blocks == 1 and os.fstat(fd).st_size == 6)
    for told in ("EPERM", None):
        daemon = daemon_of(site)
        os.kill(daemon, signal.SIGKILL)
        assert os.fstat(fd).st_size == 6
        assert outcome(os.fsync, fd) == told
        wait_until(lambda: daemon_of(site) != daemon)
    assert outcome(os.close, fd) is None
    subprocess.run(["chattr", "-i", path], check=True)
    assert path.read_bytes() == b"before"
