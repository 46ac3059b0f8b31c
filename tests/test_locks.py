"""Advisory locks through the kernel: fcntl (of processes and of open files) and flock, held between two mounts, and what is
left of them when a process, a mount or the metadata server dies."""

import fcntl
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading

import pytest

from conftest import Mount, wait_until

# A process that does what it is told, one JSON list a line: [operation, arguments…], answered by one line.
WORKER = r"""
import errno, fcntl, json, os, signal, struct, sys
FLOCK = "hhxxxxqqixxxx"
class Alarm(Exception): pass
def on_alarm(*_): raise Alarm
signal.signal(signal.SIGALRM, on_alarm)
files = {}
def record(name, command, kind, start, length):
    packed = struct.pack(FLOCK, kind, os.SEEK_SET, start, length, 0)
    return struct.unpack(FLOCK, fcntl.fcntl(files[name], command, packed))
def do(operation, *a):
    if operation == "open": files[a[0]] = os.open(a[1], os.O_RDWR | os.O_CREAT, 0o666)
    elif operation == "close": os.close(files.pop(a[0]))
    elif operation == "record": return record(*a)
    elif operation == "flock": fcntl.flock(files[a[0]], a[1])
    elif operation == "read": return os.pread(files[a[0]], 100, 0).decode()
    elif operation == "write": return os.pwrite(files[a[0]], a[1].encode(), 0)
    elif operation == "alarm": signal.setitimer(signal.ITIMER_REAL, a[0])
for line in sys.stdin:
    try: answer = ["ok", do(*json.loads(line))]
    except Alarm: answer = ["EINTR", None]
    except OSError as e: answer = [errno.errorcode[e.errno], None]
    print(json.dumps(answer), flush=True)
"""
SET, WAIT, GET = fcntl.F_SETLK, fcntl.F_SETLKW, fcntl.F_GETLK
OFD_GET, OFD_SET, OFD_WAIT = 36, 37, 38
READ, WRITE, UNLOCK = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK


class Locker:
    """A process with the file open as "f", through one mount."""

    def __init__(self, path):
        self.process = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        assert self("open", "f", str(path)) == "ok"

    def tell(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def hear(self):
        self.code, self.value = json.loads(self.process.stdout.readline())
        return self.code

    def __call__(self, *command):
        self.tell(*command)
        return self.hear()

    def lock(self, kind=WRITE, start=0, length=0, command=SET, name="f"):
        return self("record", name, command, kind, start, length)

    def waits(self):
        """The last command is in the kernel, and has no answer."""
        stat = f"/proc/{self.process.pid}"
        with open(f"{stat}/syscall") as file:
            return file.read().split()[0] in ("72", "73") and self.process.poll() is None

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def lockers(mounts):
    """make(n): processes with one file open, by turns through either mount."""
    made = []

    def make(count, name="f"):
        (mounts[0] / name).touch()
        made.extend(Locker(mounts[n % 2] / name) for n in range(count))
        return made[-count:]

    yield make
    for one in made:
        one.end()


def test_ranges_and_holders_are_seen_through_both_mounts(lockers):
    one, two = lockers(2)
    assert one.lock(WRITE, 10, 10) == "ok"
    assert two.lock(READ, 19, 5) in ("EAGAIN", "EACCES")
    assert two.lock(READ, 20, 5) == "ok"
    assert two.lock(READ, 0, 0, GET) == "ok"
    kind, _, start, length, pid = two.value
    assert (kind, start, length, pid) == (WRITE, 10, 10, one.process.pid)
    assert one.lock(READ, 15, 10) == "ok"  # part of it converted, and shared with the other
    assert two.lock(READ, 15, 5) == "ok"
    assert two.lock(READ, 14, 1) == "EAGAIN"
    assert one.lock(UNLOCK, 0, 0) == "ok"
    assert two.lock(WRITE, 0, 0) == "ok"


def test_a_wait_ends_with_the_unlock_the_close_and_the_death_of_the_holder(lockers):
    one, two = lockers(2)
    path = os.readlink(f"/proc/{one.process.pid}/fd/3")
    for give_up in (lambda: one.lock(UNLOCK), lambda: one("close", "f"), one.end):
        assert one.lock(WRITE, 5, 5) == "ok"
        two.tell("record", "f", WAIT, WRITE, 0, 0)
        wait_until(two.waits)
        give_up()
        assert two.hear() == "ok"
        assert two.lock(UNLOCK) == "ok"
        if one.process.poll() is None:
            assert one("open", "f", path) == "ok"


def test_flock_and_locks_of_open_files_wait_too(lockers):
    one, two = lockers(2)
    for mine, theirs, unlock in [
        (("flock", "f", fcntl.LOCK_EX), ("flock", "f", fcntl.LOCK_SH), ("flock", "f", fcntl.LOCK_UN)),
        (("record", "f", OFD_SET, WRITE, 0, 0), ("record", "f", OFD_WAIT, READ, 3, 1), ("record", "f", OFD_SET, UNLOCK, 0, 0)),
    ]:
        assert one(*mine) == "ok"
        two.tell(*theirs)
        wait_until(two.waits)
        assert one(*unlock) == "ok"
        assert two.hear() == "ok"
        assert two(*unlock) == "ok"


def test_kinds_end_with_what_they_belong_to(lockers):
    one, two = lockers(2)
    path = os.readlink(f"/proc/{one.process.pid}/fd/3")
    # A process loses its locks with any descriptor of the file, an open file with the last of its own.
    assert one("open", "g", path) == "ok"
    assert one.lock(WRITE, 0, 1) == "ok"
    assert one("record", "f", OFD_SET, WRITE, 1, 1) == "ok"
    assert one("flock", "f", fcntl.LOCK_EX) == "ok"
    assert one("close", "g") == "ok"
    assert two.lock(WRITE, 0, 1) == "ok"
    assert two.lock(WRITE, 1, 1) == "EAGAIN"
    assert two("flock", "f", fcntl.LOCK_EX | fcntl.LOCK_NB) == "EAGAIN"
    assert one("close", "f") == "ok"
    two.tell("record", "f", WAIT, WRITE, 1, 1)
    assert two.hear() == "ok"
    assert two("flock", "f", fcntl.LOCK_EX) == "ok"


def test_a_signal_ends_a_wait(lockers):
    one, two = lockers(2)
    assert one.lock() == "ok"
    assert two("alarm", 0.2) == "ok"
    assert two.lock(command=WAIT) == "EINTR"
    two.tell("record", "f", WAIT, WRITE, 0, 0)
    wait_until(two.waits)
    two.end()  # SIGKILL does not wait for the lock either
    assert one.lock(UNLOCK) == "ok"


def test_a_circle_of_waits_is_told(lockers):
    one, two = lockers(2)
    assert one.lock(WRITE, 0, 1) == "ok"
    assert two.lock(WRITE, 1, 1) == "ok"
    one.tell("record", "f", WAIT, WRITE, 1, 1)
    wait_until(one.waits)

    def answered():
        two("alarm", 0.5)  # in the case that the first is not at the server yet
        return two.lock(WRITE, 0, 1, WAIT) in ("EDEADLK", "EDEADLOCK")  # two names of one number

    wait_until(answered)
    two("alarm", 0)
    assert two.lock(UNLOCK) == "ok"
    assert one.hear() == "ok"


def test_random_locks_of_several_processes_as_on_tmpfs(lockers, mounts):
    """Every operation is done on a file of the mounts and on one of tmpfs, and must end the same way."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as reference:
        everyone = lockers(4)
        for one in everyone:
            assert one("open", "r", reference.name) == "ok"
        for step in range(1500):
            one = rng.choice(everyone)
            start, length = rng.randrange(30), rng.choice([0, 1, 2, 5, 10])
            what = rng.random()
            if what < 0.55:
                command = ["record", rng.choice([SET, SET, OFD_SET]), rng.choice([READ, WRITE, UNLOCK]), start, length]
            elif what < 0.75:
                command = ["record", rng.choice([GET, OFD_GET]), rng.choice([READ, WRITE]), start, length]
            elif what < 0.97:
                command = ["flock", rng.choice([fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN]) | fcntl.LOCK_NB]
            else:
                command = ["reopen"]
            tested = command[0] == "record" and command[1] in (GET, OFD_GET)
            outcomes = []
            for name, path in (("f", mounts[0] / "f"), ("r", reference.name)):
                if command[0] == "reopen":  # another descriptor of the file, closed: the process loses its locks
                    if name == "f":
                        path = os.readlink(f"/proc/{one.process.pid}/fd/3")
                    outcomes.append((one("open", "again", str(path)), one("close", "again")))
                    continue
                code = one(command[0], name, *command[1:])
                outcomes.append((code, tested and one.value[0] == UNLOCK))
            assert outcomes[0] == outcomes[1], (step, command)


def test_what_is_written_under_a_lock_is_read_under_the_next(lockers):
    one, two = lockers(2)
    for n in range(30):
        writer, reader = (one, two) if n % 2 else (two, one)
        assert writer.lock(WRITE, command=WAIT) == "ok"
        assert writer("write", "f", f"round {n:3}") == "ok"
        assert writer.lock(UNLOCK) == "ok"
        assert reader.lock(READ, command=WAIT) == "ok"
        assert reader("read", "f") == "ok"
        assert reader.value == f"round {n:3}"
        assert reader.lock(UNLOCK) == "ok"


def test_many_wait_and_everything_else_goes_on(lockers, mounts):
    (holder,) = lockers(1, "crowded")
    (mounts[1] / "other").write_text("read me")
    assert holder("flock", "f", fcntl.LOCK_EX) == "ok"
    got = []

    def wait():
        with open(mounts[1] / "crowded") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            got.append(threading.get_native_id())
            fcntl.flock(file, fcntl.LOCK_UN)

    threads = [threading.Thread(target=wait) for _ in range(60)]
    for thread in threads:
        thread.start()

    def all_wait():
        return all(open(f"/proc/self/task/{t.native_id}/syscall").read().split()[0] == "73" for t in threads)

    wait_until(all_wait)
    assert (mounts[1] / "other").read_text() == "read me"
    assert not got
    assert holder("flock", "f", fcntl.LOCK_UN) == "ok"
    for thread in threads:
        thread.join()
    assert len(got) == 60


def test_sqlite_on_two_mounts_at_once(mounts):
    path = mounts[0] / "numbers.db"
    with sqlite3.connect(path) as base:
        base.execute("create table counter (n integer)")
        base.execute("insert into counter values (0)")
        base.execute("create table entry (who integer, n integer)")
    base.close()
    program = """
import sqlite3, sys
path, who, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
base = sqlite3.connect(path, timeout=120, isolation_level=None)
for n in range(rounds):
    base.execute("begin immediate")
    base.execute("update counter set n = n + 1")
    base.execute("insert into entry values (?, ?)", (who, n))
    base.execute("commit")
"""
    rounds = 25
    workers = [
        subprocess.Popen([sys.executable, "-c", program, str(mounts[n % 2] / "numbers.db"), str(n), str(rounds)])
        for n in range(4)
    ]
    assert [worker.wait(300) for worker in workers] == [0] * 4
    for mount in mounts:
        base = sqlite3.connect(mount / "numbers.db")
        assert base.execute("select n from counter").fetchone() == (4 * rounds,)
        assert base.execute("select count(*), count(distinct who * 1000 + n) from entry").fetchone() == (4 * rounds, 4 * rounds)
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)
        base.close()


# ---- What dies ----


@pytest.fixture
def apart(make_site):
    """A site with its roles apart and a short lease, its volume, and a second mount of it."""
    site = make_site(separate=True, options=("--lease-ms", "3000"))
    site.up()
    first = site.volume()
    (first / "f").touch()
    second = Mount(site, "mnt2", options=("--no-hold",))  # nobody goes on with it: as a host that dies
    yield site, first, second
    second.end()


def test_locks_outlive_the_metadata_server(apart):
    site, first, second = apart
    one, two, three = Locker(first / "f"), Locker(second.volume / "f"), Locker(second.volume / "f")
    try:
        assert one.lock(WRITE, 0, 10) == "ok"
        assert one("flock", "f", fcntl.LOCK_EX) == "ok"
        two.tell("record", "f", WAIT, WRITE, 5, 1)
        wait_until(two.waits)
        for _ in range(2):
            site.kill("meta")
            assert three.lock(WRITE, 0, 1) == "EAGAIN"
            assert three("flock", "f", fcntl.LOCK_SH | fcntl.LOCK_NB) == "EAGAIN"
            assert one.lock(READ, 9, 5) == "ok"
        assert two.waits()
        assert one.lock(UNLOCK, 0, 9) == "ok"
        assert two.hear() == "ok"
        assert three.lock(WRITE, 9, 1) == "EAGAIN"
    finally:
        for locker in (one, two, three):
            locker.end()


def test_a_mount_that_is_killed_loses_its_locks_with_its_lease(apart):
    _, first, second = apart
    one, two = Locker(first / "f"), Locker(second.volume / "f")
    try:
        assert two.lock() == "ok"
        second.process.kill()
        second.process.wait()
        assert one.lock() == "EAGAIN"
        assert one.lock(command=WAIT) == "ok"
    finally:
        subprocess.run(["umount", "-l", second.path], capture_output=True)
        for locker in (one, two):
            locker.end()


def test_a_lock_that_was_lost_is_told(apart):
    _, first, second = apart
    one, two = Locker(first / "f"), Locker(second.volume / "f")
    try:
        assert two.lock() == "ok"
        assert two("write", "f", "mine") == "ok"
        second.process.send_signal(signal.SIGSTOP)
        assert one.lock(command=WAIT) == "ok"
        assert one("write", "f", "no, mine") == "ok"
        second.process.send_signal(signal.SIGCONT)
        wait_until(lambda: two("write", "f", "late") == "EIO")
        assert two("write", "f", "late") == "EIO"
        assert two.lock(WRITE, 3, 1) == "ENOLCK"
        assert two.lock(UNLOCK) == "ok"
        assert two.lock(READ) == "EAGAIN"
        assert one.lock(UNLOCK) == "ok"
        assert two.lock(READ) == "ok"
        assert two("read", "f") == "ok" and two.value == "no, mine"
    finally:
        for locker in (one, two):
            locker.end()
