"""The power goes away: the site lies on a file system that is shut down in the middle of writes, without anything being
written back. What was synced is there, names are as acknowledged, nothing is torn, fsck is clean and nothing leaks."""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

import power
from conftest import wait_until
from power_writer import Writer, gone


@pytest.fixture
def powered_site(make_site):
    """powered_site(separate=…): a site whose directory lies on a disk whose power can be cut."""
    if why := power.available():
        pytest.skip(why)
    disks = []

    def make(separate: bool):
        site = make_site(separate=separate, options=("--lease-ms", "2000"))
        site.disk = power.PowerDisk(site.directory)
        site.dir = site.disk.path / "site"
        disks.append(site)
        return site

    yield make
    for site in disks:
        with contextlib.suppress(OSError):  # the disk may be without power
            for log in sorted((site.dir / "log").glob("*")):  # shown where the test failed
                print(f"--- {log.name}\n{log.read_text()[-1500:]}")
        site.clean_up()
        site.disk.remove()


def processes_of(site) -> list:
    """Every process that was given the site's directory, also one that was restarted a moment ago."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(site.dir).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            pass  # it ended meanwhile
    return found


def kill_everything(site) -> None:
    """kill -9, and nothing gets to stop well or to be restarted meanwhile."""
    site.process.send_signal(signal.SIGSTOP)

    def roles_are_dead() -> bool:
        roles = [pid for pid in processes_of(site) if pid != site.process.pid]
        for pid in roles:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not roles

    wait_until(roles_are_dead)
    site.process.kill()
    site.process.wait()
    site.process = None


def work_until_interrupted(site, writers, seconds: float, cut: bool) -> None:
    """Ends in kill -9 of everything, with or without the power going first."""
    for writer in writers:
        writer.start()
    time.sleep(seconds)
    if cut:
        for writer in writers:
            writer.dark.set()
        site.disk.cut()
    kill_everything(site)
    for writer in writers:
        writer.stop.set()
        writer.join(60)
        assert not writer.is_alive(), f"{writer.name} hangs in {writer.in_call}"
        assert gone(writer.failure), f"{writer.name} in {writer.in_call}: {writer.failure}"
    subprocess.run(["umount", "-l", str(site.mount)], capture_output=True)
    if cut:
        site.disk.unplug()
        site.disk.restore()


def nothing_is_left(site) -> bool:
    report = site.fsck()
    return report["blocks"] == 0 and report["dead"] == 0 and report["problems"] == []


@pytest.mark.parametrize("separate", [False, True], ids=["one process", "roles apart"])
def test_what_was_synced_survives_power_cuts(powered_site, separate):
    seed = int(os.environ.get("STARLANE_TEST_SEED", random.randrange(1 << 32)))
    print(f"seed {seed} (STARLANE_TEST_SEED)")
    rng = random.Random(seed)
    site = powered_site(separate)
    site.up()
    site.volume()
    names = {}
    for number in range(3):
        (site.mount / f"volumes/work/w{number}").mkdir()
    os.fsync(os.open(site.mount / "volumes/work", os.O_RDONLY))
    calls = syncs = lost = 0
    for cut in (True, False, True, True, True):
        directory = site.mount / "volumes/work"
        writers = [Writer(directory / f"w{n}", n, rng.getrandbits(32), names.get(n)) for n in range(3)]
        work_until_interrupted(site, writers, 0.4 + rng.random(), cut)
        site.up()
        for writer in writers:
            names[writer.number] = writer.check()
            calls, syncs, lost = calls + writer.calls, syncs + writer.syncs, lost + writer.lost
        assert site.fsck()["problems"] == []
    assert calls > 50 and syncs > 10, f"{calls} calls, {syncs} of them synced: too few to say anything"
    print(f"{calls} calls, {syncs} syncs; {lost} files that were never synced read as an error")
    for directory in (site.mount / "volumes/work").iterdir():
        for path in directory.iterdir():
            path.unlink()
    wait_until(lambda: nothing_is_left(site), seconds=120, pause=0.5)
