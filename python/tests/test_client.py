"""starlane.client and starlane:// paths: the C interface from Python, beside the kernel's mount of the same site."""

import ctypes
import os
import re
import threading

import pytest
import torch
from checkpoints import assert_same, state_dict
from conftest import ROOT, run_python

import starlane.torch as st
from starlane import _native, client

torch.set_num_threads(1)


@pytest.fixture
def connected(site):
    with client.Client(site.dir) as one:
        yield one


def test_structs_are_those_of_the_header():
    """Every prototype and every field of src/capi/starlane.h is in the binding, in its order."""
    header = (ROOT / "src/capi/starlane.h").read_text()
    assert set(re.findall(r"SL_API [^(]*?(sl_\w+)\(", header)) == set(_native._PROTOTYPES)
    for name, struct in (("options", _native.Options), ("stat", _native.Stat), ("entry", _native.Entry), ("io", _native.Io),
                         ("change", _native.Change), ("volume", _native.Volume), ("dataset", _native.Dataset)):
        body = re.search(rf"typedef struct sl_{name} \{{(.*?)\}} sl_{name};", header, re.S)[1]
        lines = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        fields = [re.sub(r"[*\s]|\[.*", "", one.split()[-1]) for line in lines.split(";") for one in line.split(",") if one.strip()]
        assert fields == [field for field, *_ in struct._fields_], name
    assert int(re.search(r"#define SL_ABI (\d+)", header)[1]) == _native.ABI


def test_files(site, work, connected):
    here = f"/volumes/work/{work.name}"
    with connected.open(f"{here}/x", "w+") as file:
        assert file.pwrite(b"0123456789", 0) == 10
        assert file.pread(4, 3) == b"3456"
        file.fsync()
    assert (work / "x").read_bytes() == b"0123456789"
    (work / "y").write_bytes(bytes(300_000))
    assert {name: stat.length for name, stat in connected.list(here)} == {"x": 10, "y": 300_000}
    connected.rename(f"{here}/x", f"{here}/z")
    connected.mkdir(f"{here}/d")
    assert connected.stat(f"{here}/d").is_dir and connected.exists(f"{here}/z") and not connected.exists(f"{here}/x")
    with pytest.raises(FileNotFoundError, match="x"):
        connected.open(f"{here}/x")
    with pytest.raises(OSError, match="directory"):
        connected.unlink(f"{here}/d")
    connected.rmdir(f"{here}/d")
    connected.unlink(f"{here}/z")
    with pytest.raises(ValueError, match="mode"):
        connected.open(f"{here}/y", "q")


def test_volumes_and_datasets(site, connected, tmp_path):
    connected.create_volume("made-by-python", quota_bytes=1 << 20)
    assert {one.name: one.quota_bytes for one in connected.volumes()}["made-by-python"] == 1 << 20
    connected.delete_volume("made-by-python")
    assert "made-by-python" not in {one.name for one in connected.volumes() if not one.deleting}
    (tmp_path / "page").write_text("text")
    site.run("dataset", "publish", str(tmp_path), "python-books", "v1")
    assert [(one.version, one.files, one.bytes, one.frozen) for one in connected.datasets() if one.name == "python-books"] == \
        [("v1", 1, 4, True)]
    with pytest.raises(OSError, match="published"):
        connected.open("/public/python-books/v1/page", "r+")


def test_batches(work, connected):
    data = os.urandom(9_000_001)
    (work / "bytes").write_bytes(data)
    memory = bytearray(len(data))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    with connected.open(f"/volumes/work/{work.name}/bytes") as file, connected.batch() as batch:
        ios = batch.submit([(file, address + at, min(1_000_000, len(data) - at), at) for at in range(0, len(data), 1_000_000)])
        batch.wait()
        assert memory == data and batch.progress_bytes() == len(data) and ios[-1].result == 1
        with pytest.raises(OSError, match="open for"):
            batch.submit([(file, address, 10, 0)], write=True)


def test_watch(work, connected):
    path = f"/volumes/work/{work.name}/seen"
    changes = connected.watch(path, interval_ms=20, timeout_ms=20_000)
    threading.Timer(0.1, lambda: (work / "seen").write_text("now")).start()
    kind, stat = next(changes)
    assert kind == "appeared"
    if stat.length != 3:
        assert next(changes)[0] == "changed"
    (work / "seen").unlink()
    assert next(changes) == ("gone", None)


def test_starlane_paths(site, work, monkeypatch):
    """Save and load without the mount; the mount sees the same."""
    monkeypatch.setenv("STARLANE_DIR", str(site.dir))
    state = state_dict()
    path = f"starlane:///volumes/work/{work.name}/model.pt"
    st.save(state, path)
    assert_same(torch.load(work / "model.pt"), state)
    assert_same(st.load(path), state)
    into = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    st.load_into(into, path)
    assert_same(into, state)
    with pytest.raises(FileNotFoundError):
        st.load(path + "x")
    assert os.listdir(work) == ["model.pt"]
    monkeypatch.delenv("STARLANE_DIR")


def test_a_report_says_where_bytes_came_from(site, work, monkeypatch):
    monkeypatch.setenv("STARLANE_DIR", str(site.dir))
    st.save({"x": torch.randn(20_000_000)}, work / "model.pt")
    st.load(work / "model.pt")
    report = st.last_report()
    assert report.from_store is not None and report.from_store + report.from_cache >= report.bytes
    assert "from the store" in str(report)


def test_fork(site, python_env):
    """A child gets an error from its parent's client, at once, and its own from `shared`."""
    script = """
import os, sys
from starlane import client
os.environ["STARLANE_DIR"] = sys.argv[1]
parent = client.shared()
parent.stat("/volumes")
pid = os.fork()
if pid == 0:
    try:
        parent.stat("/volumes")
    except ChildProcessError as failure:
        assert "fork" in str(failure)
        client.shared().stat("/volumes")
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
parent.stat("/volumes")
"""
    assert run_python(script, python_env, str(site.dir)) == "7\n"


def test_what_was_not_closed_is_at_the_end_of_the_process(site, work, connected, python_env):
    """The bytes are there, and no session is left for others to wait for."""
    script = """
import sys
from starlane import client
one = client.Client(sys.argv[1])
file = one.open(sys.argv[2], "w")
file.pwrite(b"not closed", 0)
batch, other = one.batch(), client.shared(sys.argv[1])
other.stat("/volumes/work")
"""
    sessions = [volume.sessions for volume in connected.volumes()]
    run_python(script, python_env, str(site.dir), f"/volumes/work/{work.name}/f")
    assert [volume.sessions for volume in connected.volumes()] == sessions
    assert (work / "f").read_bytes() == b"not closed"


def test_errors_are_clear(tmp_path, monkeypatch):
    monkeypatch.delenv("STARLANE_DIR", raising=False)
    with pytest.raises(ValueError, match="STARLANE_DIR"):
        client.Client()
    with pytest.raises(FileNotFoundError, match="starlane up"):
        client.Client(tmp_path)
    monkeypatch.setenv("STARLANE_LIBRARY", str(tmp_path / "none.so"))
    _native.library.cache_clear()
    try:
        with pytest.raises(OSError, match="STARLANE_LIBRARY"):
            _native.library()
    finally:
        monkeypatch.undo()
        _native.library.cache_clear()


