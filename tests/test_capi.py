"""The C interface, used by a program in C11 (src/capi/conversation.c) on a real site; what it wrote is read by the kernel's
mount, and the other way round."""

import pathlib
import subprocess

import pytest

from conftest import BINARY

PROGRAM = BINARY.parent / "capi_conversation"
LIBRARY = BINARY.parent.parent / "lib/libstarlane.so"


def pattern(length: int) -> bytes:
    """As byte_at of the program."""
    return bytes((i * 2654435761 >> 13) & 0xFF for i in range(length))


def converse(site, *arguments: str) -> None:
    done = subprocess.run([PROGRAM, site.dir, *arguments], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.fixture
def published(site, tmp_path):
    (tmp_path / "page").write_text("It was a dark and stormy night.")
    site.run("dataset", "publish", str(tmp_path), "books", "v1")
    return site


def test_everything(published):
    converse(published, "all")
    assert published.fsck()["problems"] == []


def test_fork(published):
    converse(published, "fork")


def test_sees_what_the_mount_wrote_and_outlives_restarts(make_site):
    """A read goes on through kill -9 of all of the site: it waits, and gets the right bytes."""
    site = make_site()
    site.up()
    length = 9_000_001
    (site.volume() / "held").write_bytes(pattern(length))
    holder = subprocess.Popen([PROGRAM, site.dir, "hold", "/volumes/work/held"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "ready\n"
    site.kill_all()
    holder.stdin.write("go\n")
    holder.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        holder.wait(1)  # nobody is there to answer
    subprocess.run(["umount", "-l", site.mount], capture_output=True)
    site.up()
    assert holder.communicate(timeout=60)[0] == "ok\n"


def test_patience_ends(make_site):
    site = make_site()
    site.up()
    site.volume()
    waiter = subprocess.Popen([PROGRAM, site.dir, "wait", "700"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert waiter.stdout.readline() == "ready\n"
    site.kill_all()
    out, _ = waiter.communicate("go\n", timeout=60)
    assert out == "a server of the site has been away for longer than patience_ms\nok\n"


def test_exports_nothing_else():
    """Other libraries in the process keep their own protobuf, spdlog and C++ inlines."""
    lines = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout.splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines} - {"STARLANE_1"}
    assert names and all(name.startswith("sl_") for name in names)
    header = (pathlib.Path(__file__).parent.parent / "src/capi/starlane.h").read_text()
    assert all(f" {name}(" in header for name in names)
    needed = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    assert "libuc" not in needed and "rocksdb" not in needed
