"""starlane.torch against torch and safetensors themselves, on a mount: what they wrote we read, what we write they read."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import zipfile

import pytest
import safetensors
import safetensors.torch
import torch
from checkpoints import assert_same, bits, moe, plain, state_dict
from conftest import run_python
from torch.utils.serialization import config

import starlane.torch as st
from starlane import devices, memory

torch.set_num_threads(1)  # OpenMP's barriers spin, and the site runs on the same cores


@pytest.fixture(scope="module")
def state():
    return state_dict()


@pytest.fixture
def saved(work, state):
    torch.save(state, work / "model.pt")
    return work / "model.pt"


@pytest.fixture
def shards(work, state):
    """Three files with an index, as model hubs have them."""
    tensors = plain(state)
    names, where = list(tensors), {}
    for number in range(3):
        file = f"model-{number}.safetensors"
        part = {name: tensors[name] for name in names[number::3]}
        safetensors.torch.save_file(part, work / file, metadata={"format": "pt"})
        where |= dict.fromkeys(part, file)
    (work / "model.safetensors.index.json").write_text(__import__("json").dumps({"metadata": {}, "weight_map": where}))
    return tensors


# ---- load ----


@pytest.mark.parametrize("location", [None, "cpu", torch.device("cpu"), {"cpu": "cpu"}, lambda storage, _: storage])
def test_load(saved, state, location):
    got = st.load(saved, location)
    assert_same(got, torch.load(saved))
    assert got["tied"].data_ptr() == got["weight"].data_ptr()
    assert got["rows"].data_ptr() - got["weight"].data_ptr() == 3 * 48 * 4
    assert got["transposed"].stride() == state["transposed"].stride()
    report = st.last_report()
    assert report.bytes >= 20_000_044 and "unpickle" in report.phases and "GB/s" in str(report)


def test_tensors_own_their_memory(saved, state):
    got = st.load(saved)
    os.truncate(saved, 0)
    saved.unlink()
    assert_same(got, state)
    got["weight"].fill_(1)
    assert got["tied"].sum() == 64 * 48 and bits(got["scalar"]) == bits(state["scalar"])
    assert got["weight"].untyped_storage().nbytes() == 64 * 48 * 4  # so that saving one does not save the arena


def test_load_of_every_layout(work, state):
    """Alignment, checksums and order as torch's switches and older versions write them; plain objects; optimizers."""
    for alignment in (64, 4096):
        with config.patch({"save.storage_alignment": alignment, "save.compute_crc32": False}):
            torch.save(state, work / "aligned.pt")
        assert_same(st.load(work / "aligned.pt"), state)
    model = torch.nn.Sequential(torch.nn.Linear(9, 5), torch.nn.Linear(5, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 9)).sum().backward()
    optimizer.step()
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "note": "x", "nothing": []}
    torch.save(whole, work / "whole.pt")
    got = st.load(work / "whole.pt")
    assert_same(got["model"], whole["model"])
    assert (got["epoch"], got["note"], got["nothing"]) == (3, "x", [])
    assert bits(got["optimizer"]["state"][0]["exp_avg"]) == bits(whole["optimizer"]["state"][0]["exp_avg"])


def test_load_where_headers_are_elsewhere(work, saved, state):
    """A foreign writer's padding: the computed places are wrong, the headers are right."""
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(work / "foreign.pt", "w", zipfile.ZIP_STORED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert_same(st.load(work / "foreign.pt"), state)
    into = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    st.load_into(into, work / "foreign.pt")
    assert_same(into, state)
    assert_same(torch.load(work / "foreign.pt"), state)


def test_load_to_meta(saved, state):
    got = st.load(saved, "meta")
    assert {name: (t.shape, t.dtype, t.device.type) for name, t in got.items()} == \
        {name: (t.shape, t.dtype, "meta") for name, t in state.items()}


def test_moe(work):
    state = moe(work / "moe.pt", 3000)
    begin = time.perf_counter()
    got = st.load(work / "moe.pt")
    took = time.perf_counter() - begin
    assert_same(got, state)
    print(f"{took / 3000 * 1e6:.0f} us a tensor")
    into = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    st.load_into(into, work / "moe.pt")
    assert_same(into, state)


def counts(tensor):
    """Whether it is 0, 1, 2…; looked at in pieces, which need little memory."""
    pieces = tensor.split(1 << 24)
    return all(torch.equal(piece, torch.arange(at << 24, (at << 24) + len(piece))) for at, piece in enumerate(pieces))


@pytest.mark.slow
def test_over_4_gib(work):
    """zip64, both ways. Of the file's 4.3 GB there are three at a time: in the store, in the node cache, and as a tensor."""
    free = memory.available()
    if free is not None and free < 15 << 30:
        pytest.skip(f"needs 15 GiB of memory, {free >> 30} are free")
    state = {"first": torch.arange(537_000_000), "second": torch.arange(5)}
    st.save(state, work / "huge.pt")
    del state
    theirs = torch.load(work / "huge.pt", mmap=True)
    assert counts(theirs["first"]) and counts(theirs["second"])
    del theirs
    into = {"first": torch.zeros(537_000_000, dtype=torch.int64), "second": torch.zeros(5, dtype=torch.int64)}
    st.load_into(into, work / "huge.pt")
    (work / "huge.pt").unlink()
    assert counts(into["first"]) and counts(into["second"])
    torch.save(into, work / "theirs.pt")
    del into
    got = st.load(work / "theirs.pt")
    assert counts(got["first"]) and counts(got["second"])


# ---- What must not be loaded ----


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/starlane-was-run",)


def test_code_is_not_run(work):
    torch.save({"x": torch.ones(2), "evil": Evil()}, work / "evil.pt")
    with pytest.raises(pickle.UnpicklingError, match="trust"):
        st.load(work / "evil.pt")
    with pytest.raises(pickle.UnpicklingError):
        st.load_into({"x": torch.ones(2)}, work / "evil.pt")
    assert not os.path.exists("/tmp/starlane-was-run")
    torch.save(torch.nn.Linear(2, 2), work / "module.pt")
    assert isinstance(st.load(work / "module.pt", weights_only=False), torch.nn.Linear)


def test_bombs_and_foreign_files(work):
    with zipfile.ZipFile(work / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("model/data.pkl", bytes(50_000_000))
    (work / "text.pt").write_text("no checkpoint at all")
    (work / "empty.pt").write_bytes(b"")
    torch.save({"x": torch.ones(2)}, work / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("bomb.pt", "text.pt", "empty.pt", "old.pt"):
        with pytest.raises(st.FormatError):
            st.load(work / name)
    for name in ("text.pt", "empty.pt", "bomb.pt"):
        with pytest.raises(st.FormatError):
            st.load_file(work / name)
    with pytest.raises(FileNotFoundError):
        st.load(work / "none.pt")
    with pytest.raises(IsADirectoryError):
        st.load(work)


# ---- load_file, safe_open ----


@pytest.mark.parametrize("what", ["index", "directory", "list"])
def test_load_file(work, shards, what):
    paths = {"index": work / "model.safetensors.index.json", "directory": work, "list": sorted(work.glob("*.safetensors"))}[what]
    got = st.load_file(paths)
    assert_same(got, shards)
    assert got["large"].untyped_storage().nbytes() == shards["large"].numel() * 4


def test_load_file_refuses_twice_and_elsewhere(work, shards):
    with pytest.raises(st.FormatError, match="is in"):
        st.load_file([work / "model-0.safetensors", work / "model-0.safetensors"])
    (work / "bad.safetensors.index.json").write_text('{"weight_map": {"x": "../../etc/passwd"}}')
    with pytest.raises(st.FormatError, match="beside"):
        st.load_file(work / "bad.safetensors.index.json")


def test_misaligned_header_is_copied(work):
    """A header whose length is odd: tensors lie askew in the file."""
    raw = safetensors.torch.save({"x": torch.arange(9, dtype=torch.float64)})
    size = int.from_bytes(raw[:8], "little")
    askew = (size + 3).to_bytes(8, "little") + raw[8:8 + size] + b"   " + raw[8 + size:]
    (work / "askew.safetensors").write_bytes(askew)
    got = st.load_file(work / "askew.safetensors")["x"]
    assert torch.equal(got, torch.arange(9, dtype=torch.float64)) and got.data_ptr() % 8 == 0


def test_safe_open(work, state):
    tensors = plain(state)
    safetensors.torch.save_file(tensors, work / "one.safetensors", metadata={"who": "me"})
    with st.safe_open(work / "one.safetensors") as ours, safetensors.safe_open(work / "one.safetensors", "pt") as theirs:
        assert (ours.keys(), ours.metadata()) == (sorted(theirs.keys()), theirs.metadata())
        assert ours.offset_keys() == list(theirs.offset_keys())
        assert_same({name: ours.get_tensor(name) for name in ours.keys()}, tensors)  # noqa: SIM118
        assert_same(ours.get_tensors(["weight", "empty", "mask"]), {name: tensors[name] for name in ("weight", "empty", "mask")})
        assert_same(dict(ours.tensors()), tensors)
        a, b = ours.get_slice("weight"), theirs.get_slice("weight")
        assert (a.get_shape(), a.get_dtype()) == (b.get_shape(), b.get_dtype())
        for index in (slice(3, 7), (slice(None), slice(2, 5)), 5, -1, (slice(1, 30), 1), slice(-10, None), slice(60, 99), ...,
                      slice(7, 3)):
            assert torch.equal(a[index], b[index] if index != slice(7, 3) else tensors["weight"][7:3]), index
        with pytest.raises(KeyError):
            ours.get_tensor("none")
        with pytest.raises(IndexError):
            a[64]


# ---- load_into ----


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_load_into_module(work, kind):
    torch.manual_seed(3)
    source, target = (torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.LayerNorm(700)) for _ in range(2))
    path = work / f"module.{kind}"
    torch.save(source.state_dict(), path) if kind == "pt" else safetensors.torch.save_file(source.state_dict(), path)
    before = [parameter.data_ptr() for parameter in target.parameters()]
    assert st.load_into(target, path) == ([], [])
    assert_same(target.state_dict(), source.state_dict())
    assert [parameter.data_ptr() for parameter in target.parameters()] == before
    target = target.double()
    st.load_into(target, path)
    assert torch.equal(target[0].weight, source[0].weight.double())


def test_load_into_says_what_is_wrong(work, saved, state):
    with pytest.raises(RuntimeError, match="missing: nobody"):
        st.load_into({**state, "nobody": torch.ones(1)}, saved)
    with pytest.raises(RuntimeError, match="shape"):
        st.load_into({**state, "weight": torch.ones(1)}, saved)
    with pytest.raises(RuntimeError, match="to_empty"):
        st.load_into({"scalar": torch.empty((), device="meta")}, saved, strict=False)
    only = {"scalar": torch.tensor(0.0)}
    missing, unexpected = st.load_into(only, saved, strict=False)
    assert (missing, len(unexpected), only["scalar"].item()) == ([], len(state) - 1, 3.5)
    torch.save({"model": state}, work / "inside.pt")
    st.load_into(only, work / "inside.pt", strict=False, key="model")
    with pytest.raises(st.FormatError, match="under"):
        st.load_into(only, work / "inside.pt", key="nothing")


# ---- save ----


def test_save(work, state):
    st.save(state, work / "ours.pt")
    assert "publish" in st.last_report().phases
    assert_same(torch.load(work / "ours.pt"), state)
    with config.patch({"load.calculate_storage_offsets": True}):
        assert_same(torch.load(work / "ours.pt", mmap=True), state)
    assert_same(st.load(work / "ours.pt"), state)
    assert zipfile.ZipFile(work / "ours.pt").testzip() is None
    got = torch.load(work / "ours.pt")
    assert got["tied"].data_ptr() == got["weight"].data_ptr()
    assert os.listdir(work) == ["ours.pt"]


def test_save_copies_from_devices_through_pinned_memory(work):
    """torch is told to, during the save alone."""
    seen = []

    class Looks:
        def __reduce__(self):
            seen.append(config.save.use_pinned_memory_for_d2h)
            return int, (1,)

    st.save(Looks(), work / "x.pt")
    assert seen == [True] and config.save.use_pinned_memory_for_d2h is False


def test_save_publishes_whole(work, state):
    """Readers see the old file or the new one, all the while; a failure leaves the old one."""
    path = work / "latest.pt"
    st.save({"x": torch.zeros(3_000_000)}, path)
    wrong, stop = [], threading.Event()

    def look():
        while not stop.is_set():
            seen = st.load(path)["x"]
            if not torch.equal(seen, seen[0].expand_as(seen)):
                wrong.append(seen)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(1, 6):
        st.save({"x": torch.full((3_000_000,), float(number))}, path)
    stop.set()
    reader.join()
    assert not wrong and st.load(path)["x"][0] == 5
    with pytest.raises((pickle.PicklingError, AttributeError)):
        st.save({"x": lambda: 1}, path)
    assert st.load(path)["x"][0] == 5 and os.listdir(work) == ["latest.pt"]


def test_save_burst_and_keep_last(work):
    for number in range(6):
        st.save({"step": torch.tensor(number)}, work / f"step-{number}.pt")
    removed = st.keep_last(work, 2, "step-*.pt")
    assert len(removed) == 4 and sorted(os.listdir(work)) == ["step-4.pt", "step-5.pt"]
    with pytest.raises(ValueError):
        st.keep_last(work, 0)


def test_full_volume(site, state):
    site.run("volume", "create", "small", "--quota", "8MiB")
    folder = site.mount / "volumes/small"
    with pytest.raises(OSError, match=r"(?i)quota|space"):
        st.save(state, folder / "model.pt")
    assert os.listdir(folder) == []


# ---- Devices, groups, patches, processes ----


def test_no_cpu_touches_device_memory(work, saved, state):
    """The fake's memory has no right for this process: a copy by the CPU would be a fault."""
    tensors = plain(state)
    safetensors.torch.save_file(tensors, work / "one.safetensors")
    fake = devices.Fake()
    got = st.load_file(work / "one.safetensors", device=fake)
    for name, tensor in tensors.items():
        if tensor.numel():
            assert fake.read(got[name].data_ptr(), tensor.numel() * tensor.element_size()) == bits(tensor), name
    assert fake.copied_bytes == sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    loaded = st.load(saved, map_location=fake)
    storage = loaded["weight"].untyped_storage()
    assert fake.read(storage.data_ptr(), storage.nbytes()) == bits(state["weight"])
    del got, loaded, storage
    assert fake.freed_bytes > 0
    with pytest.raises(devices.DeviceError, match="memory"):
        st.load_file(work / "one.safetensors", device=devices.Fake(capacity=1 << 20))
    with pytest.raises(devices.DeviceError, match="told"):
        st.load_file(work / "one.safetensors", device=devices.Fake(fail_after=2))


def test_touching_the_fake_is_a_fault(python_env):
    script = "from starlane import devices; f = devices.Fake(); m = f.owner(f.alloc(8), 8); print(m[0])"
    assert subprocess.run([sys.executable, "-c", script], env=python_env, capture_output=True).returncode == -signal.SIGSEGV


def test_no_gpu_is_no_error():
    assert set(devices.gpus()) == {"cuda", "hip"}


def test_gpu_check(work, python_env):
    done = subprocess.run([sys.executable, "-m", "starlane.gpu_check", str(work), "--size-mib", "16", "--runs", "1"],
                          env=python_env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "bits right" in done.stdout and "WRONG" not in done.stdout, done.stdout + done.stderr
    assert os.listdir(work) == []


GROUP = """
import sys, torch, torch.distributed as dist, starlane.torch as st
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[3]), world_size=2)
got = st.load_file(sys.argv[1], process_group=dist.group.WORLD)
print(sum(float(t.double().sum()) for t in got.values() if not t.is_complex()), st.last_report().phases["exchange"] >= 0)
"""


def test_process_group(work, python_env, tmp_path):
    tensors = {"a": torch.arange(6_000_000, dtype=torch.float32), "b": torch.ones(10)}
    safetensors.torch.save_file(tensors, work / "group.safetensors")
    running = [subprocess.Popen([sys.executable, "-c", GROUP, str(work / "group.safetensors"),
                                 str(tmp_path / "meet"), str(rank)], env=python_env, stdout=subprocess.PIPE, text=True)
               for rank in range(2)]
    wanted = f"{float(tensors['a'].double().sum()) + 10} True\n"
    assert [one.communicate(timeout=120)[0] for one in running] == [wanted, wanted]


def test_patch(work, saved, state):
    tensors = plain(state)
    safetensors.torch.save_file(tensors, work / "one.safetensors")
    torch.save({"x": torch.ones(2)}, work / "old.pt", _use_new_zipfile_serialization=False)
    before = torch.load, safetensors.safe_open, safetensors.torch.load_file
    with st.patch():
        assert_same(torch.load(saved), state)
        assert st.last_report().what == "load"
        assert_same(safetensors.torch.load_file(work / "one.safetensors"), tensors)
        with safetensors.safe_open(work / "one.safetensors", framework="pt") as file:
            assert isinstance(file, st.safe_open)
        assert torch.load(work / "old.pt")["x"].sum() == 2
        assert_same(torch.load(saved, mmap=True), state)
        with open(saved, "rb") as file:
            assert_same(torch.load(file), state)
    assert before == (torch.load, safetensors.safe_open, safetensors.torch.load_file)


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_workers(saved, python_env, tmp_path, how):
    """They load for themselves, whatever the parent had done before."""
    (tmp_path / "main.py").write_text("""
import multiprocessing as mp, sys, starlane.torch as st
def work(path): return float(st.load(path)["scalar"])
if __name__ == "__main__":
    st.load(sys.argv[1])
    with mp.get_context(sys.argv[2]).Pool(2) as pool:
        print(pool.map(work, [sys.argv[1]] * 3))
""")
    done = subprocess.run([sys.executable, tmp_path / "main.py", saved, how], env=python_env, capture_output=True, text=True,
                          timeout=300)
    assert done.stdout == "[3.5, 3.5, 3.5]\n", done.stderr


def test_ctrl_c_ends_a_load(work, python_env):
    """In the middle of a file, with threads in flight: KeyboardInterrupt, at once, and the next load is whole."""
    safetensors.torch.save_file({f"t{n}": torch.full((4_000_000,), float(n)) for n in range(20)}, work / "one.safetensors")
    script = """
import os, signal, sys, threading, starlane.torch as st
from starlane.torch import _source
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored
path, reads, read = sys.argv[1], [], _source.FileSource.read_into
def counted(self, *arguments):
    reads.append(1)
    if len(reads) == 5:
        os.kill(os.getpid(), signal.SIGINT)
    return read(self, *arguments)
_source.FileSource.read_into = counted
try:
    st.load_file(path)
    print("not interrupted")
except KeyboardInterrupt:
    begun = len(reads)
    left = [thread for thread in threading.enumerate() if thread.name == "starlane-load"]
    for thread in left:
        thread.join(10)
    print("interrupted", begun < 40, [thread.name for thread in left if thread.is_alive()])
print(float(st.load_file(path)["t19"].sum()) == 19 * 4_000_000)
"""
    assert run_python(script, python_env, str(work / "one.safetensors")) == "interrupted True []\nTrue\n"


def test_a_mount_that_is_gone(own_site, state):
    """A load that finds nobody behind the mount ends with an error that says so, and the next one succeeds."""
    path = own_site.mount / "volumes/work/model.pt"
    st.save(state, path)
    own_site.kill_all()
    with pytest.raises(OSError):
        st.load(path)
    subprocess.run(["umount", "-l", own_site.mount], capture_output=True)
    own_site.up()
    assert_same(st.load(path), state)
