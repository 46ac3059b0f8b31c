"""starlane:// through fsspec itself, beside fsspec's own file system of local files on the same paths."""

import errno
import io
import os
import pickle
import random

import pytest
from conftest import ROOT, run_python

fsspec = pytest.importorskip("fsspec")

from starlane import mounts  # noqa: E402
from starlane.fsspec import StarlaneFileSystem  # noqa: E402


@pytest.fixture(autouse=True)
def registered():
    """What the package's entry point does where it is installed."""
    fsspec.register_implementation("starlane", StarlaneFileSystem, clobber=True)


@pytest.fixture
def fs(site):
    return fsspec.filesystem("starlane", mount=site.mount)


@pytest.fixture
def base(site, work) -> str:
    return str(work.relative_to(site.mount))


def test_the_entry_point_names_this_class():
    import importlib

    import tomllib

    points = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]["entry-points"]["fsspec.specs"]
    module, _, name = points["starlane"].partition(":")
    assert getattr(importlib.import_module(module), name) is StarlaneFileSystem


def test_bytes_go_both_ways(fs, base, work, site):
    url = f"starlane://{base}/a/b.bin"
    data = random.Random(1).randbytes(9_000_001)
    fs.makedirs(f"{base}/a")
    with fsspec.open(url, "wb", mount=site.mount) as file:
        file.write(data)
    assert (work / "a/b.bin").read_bytes() == data
    with fsspec.open(url, "rb", mount=site.mount) as file:
        assert file.read() == data
    with fsspec.open(url, "rb", mount=site.mount) as file:
        file.seek(-10, os.SEEK_END)
        assert file.read() == data[-10:]
    assert fs.cat(url) == data
    assert fs.cat_file(url, 5, 17) == data[5:17]
    assert fs.cat_file(url, -7) == data[-7:]
    assert fs.cat_file(url, 8_999_999, 20_000_000) == data[8_999_999:]
    fs.pipe_file(f"{base}/small", b"few")
    assert fs.cat([f"{base}/small", url]) == {f"{base}/small": b"few", f"{base}/a/b.bin": data}


def test_many_ranges_at_once(fs, base, work):
    data = [random.Random(number).randbytes(200_000) for number in range(3)]
    for number, one in enumerate(data):
        (work / str(number)).write_bytes(one)
    dice = random.Random(2)
    wanted = [(dice.randrange(3), dice.randrange(200_000), dice.randrange(1, 60_000)) for _ in range(300)]
    got = fs.cat_ranges([f"{base}/{n}" for n, _, _ in wanted], [a for _, a, _ in wanted], [a + b for _, a, b in wanted])
    assert got == [data[n][a:a + b] for n, a, b in wanted]
    mixed = fs.cat_ranges([f"{base}/0", f"{base}/none"], 0, 10)
    assert mixed[0] == data[0][:10]
    assert isinstance(mixed[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{base}/none"], 0, 10, on_error="raise")
    with pytest.raises(ValueError, match="as many"):
        fs.cat_ranges([f"{base}/0"], [0, 1], [2])


def test_names_as_fsspec_has_them_for_local_files(fs, base, work):
    local = fsspec.filesystem("file")
    (work / "d/e").mkdir(parents=True)
    (work / "d/f.txt").write_bytes(b"12345")
    (work / "d/e/g.txt").write_bytes(b"1")
    (work / "d/link").symlink_to("f.txt")
    (work / "d/broken").symlink_to("nothing")

    def described(found, root):
        whole = [one for one in found if "broken" not in one["name"]]
        return sorted((one["name"].removeprefix(root), one["type"], one["size"]) for one in whole)

    theirs = described(local.ls(str(work / "d"), detail=True), str(work))
    ours = described(fs.ls(f"{base}/d", detail=True), base)
    assert [one[0] for one in ours] == [one[0] for one in theirs]
    assert [one for one in ours if one[0] in ("/d/f.txt", "/d/link")] == [("/d/f.txt", "file", 5), ("/d/link", "file", 5)]
    assert [one[1] for one in ours if one[0] == "/d/e"] == ["directory"]
    assert sorted(fs.find(f"{base}/d", withdirs=True)) == sorted(
        base + path.removeprefix(str(work)) for path in local.find(str(work / "d"), withdirs=True))
    assert sorted(fs.glob(f"{base}/d/**/*.txt")) == [f"{base}/d/e/g.txt", f"{base}/d/f.txt"]
    assert fs.isdir(f"starlane://{base}/d")
    assert fs.isfile(f"{base}/d/f.txt")
    assert not fs.exists(f"{base}/nothing")
    assert fs.du(f"{base}/d/e") == 1
    assert fs.ls("", detail=False) and set(fs.ls("", detail=False)) == {"public", "volumes"}
    with pytest.raises(ValueError, match=r"\.\."):
        fs.info(f"{base}/../../../etc")


def test_names_change(fs, base, work):
    fs.pipe(f"{base}/one", b"x" * 100_000)
    before = fs.ukey(f"{base}/one")
    fs.mv(f"{base}/one", f"{base}/two")
    assert sorted(os.listdir(work)) == ["two"]
    fs.cp_file(f"{base}/two", f"{base}/deep/three")
    assert (work / "deep/three").read_bytes() == b"x" * 100_000
    fs.pipe(f"{base}/two", b"other")
    assert fs.ukey(f"{base}/two") != before
    fs.rm_file(f"{base}/two")
    with pytest.raises(IsADirectoryError, match="recursive=True"):
        fs.rm(f"{base}/deep")
    fs.rm(f"{base}/deep", recursive=True)
    assert os.listdir(work) == []
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{base}/deep")
    with pytest.raises(OSError, match="Read-only|not permitted|Permission") as refused:
        fs.pipe("public/x", b"1")
    assert refused.value.errno in (errno.EROFS, errno.EPERM, errno.EACCES)


def test_files_come_and_go(fs, base, work, tmp_path):
    data = random.Random(3).randbytes(5_000_000)
    (tmp_path / "in").write_bytes(data)
    fs.put(str(tmp_path / "in"), f"{base}/x/kept")
    assert (work / "x/kept").read_bytes() == data
    fs.get(f"{base}/x", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out/kept").read_bytes() == data
    into = io.BytesIO()
    fs.get_file(f"{base}/x/kept", into)
    assert into.getvalue() == data
    with pytest.raises(FileExistsError):
        fs.put_file(str(tmp_path / "in"), f"{base}/x/kept", mode="create")


def test_a_transaction_shows_all_or_nothing(fs, base, work):
    with fs.transaction:
        for name in ("a", "b"):
            with fs.open(f"{base}/{name}", "wb") as file:
                file.write(name.encode() * 1000)
        assert not (work / "a").exists()
    assert (work / "b").read_bytes() == b"b" * 1000
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open(f"{base}/c", "wb") as file:
            file.write(b"c")
        raise ZeroDivisionError
    assert sorted(os.listdir(work)) == ["a", "b"]


def test_it_travels_to_other_processes(fs, base, site, python_env):
    fs.pipe(f"{base}/file", b"there")
    assert pickle.loads(pickle.dumps(fs)).cat(f"{base}/file") == b"there"
    script = "import sys; from starlane.fsspec import StarlaneFileSystem as S; print(S().cat(sys.argv[1]).decode())"
    assert run_python(script, {**python_env, "STARLANE_MOUNT": str(site.mount)}, f"starlane://{base}/file") == "there\n"


def test_the_mount_is_found(site, tmp_path, monkeypatch):
    assert site.mount in mounts.of_this_host()
    monkeypatch.setenv("STARLANE_MOUNT", str(site.mount))
    assert mounts.find() == site.mount
    with pytest.raises(FileNotFoundError, match="not a Starlane mount"):
        mounts.find(tmp_path)
    monkeypatch.delenv("STARLANE_MOUNT")
    monkeypatch.setattr(mounts, "of_this_host", list)
    with pytest.raises(FileNotFoundError, match="starlane up"):
        mounts.find()


def test_pyarrow_and_pandas_style_readers_take_the_url(fs, base):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    table = pyarrow.table({"x": list(range(50_000))})
    parquet.write_table(table, f"{base}/t.parquet", filesystem=fs, row_group_size=5000)
    assert parquet.read_table(f"{base}/t.parquet", filesystem=fs).equals(table)
