"""The package as a whole."""

import pathlib

import pytest
from conftest import run_python

from starlane import memory


def test_import_is_light(python_env):
    """Neither torch nor the native library comes with `import starlane`: a tool may ask for the version in no time."""
    said = run_python("import starlane, sys; print(starlane.__version__, 'torch' in sys.modules, 'ctypes' in sys.modules)",
                      python_env)
    assert said == "0.1.0 False False\n"


def test_site_is_there(site, work):
    (work / "x").write_bytes(b"1")
    assert (site.mount / "volumes/work" / work.name / "x").read_bytes() == b"1"


def group_of(root: pathlib.Path, path: str, limit: str, used: int, kept: int) -> None:
    """A control group as the kernel shows it; kept: of `used`, what it keeps of files."""
    group = root / "sys/fs/cgroup" / path
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon {used - kept}\nfile {kept}\ninactive_file {kept - 10}\nactive_file 10\n")


@pytest.mark.parametrize(("groups", "wanted"), [
    ({}, 8 << 20),  # the machine's
    ({"a/b": ("max", 100, 50), "a": ("max", 100, 50)}, 8 << 20),
    ({"a/b": ("5000", 4000, 1000)}, 2000),
    ({"a/b": ("5000", 4000, 1000), "a": ("9000", 8500, 500)}, 1000),
    ({"": ("3000", 3100, 50)}, 0)])
def test_available_memory(tmp_path, groups, wanted):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:  16384 kB\nMemAvailable:  8192 kB\nHugePages_Total:  0\n")
    (tmp_path / "proc/self/cgroup").write_text("1:name=systemd:/x\n0::/a/b\n")
    for path, (limit, used, kept) in groups.items():
        group_of(tmp_path, path, limit, used, kept)
    assert memory.available(tmp_path) == wanted


def test_available_memory_of_this_machine(tmp_path):
    assert memory.available(tmp_path) is None  # there is nothing to read
    free = memory.available()
    assert free is not None and 0 < free < int(pathlib.Path("/proc/meminfo").read_text().split()[1]) * 1024
