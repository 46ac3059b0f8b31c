"""The wheel: built once, installed into a fresh environment of every Python that is here, and used against a site."""

import glob
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

SCRIPT = """
import sys
from starlane import _native, client
assert "site-packages" in _native.library()._name, _native.library()._name
with client.Client(sys.argv[1]) as one:
    with one.open("/volumes/work/wheel", "w") as file:
        file.pwrite(b"%d.%d" % sys.version_info[:2], 0)
    print(one.open("/volumes/work/wheel").stat().length > 0 and [volume.name for volume in one.volumes()])
"""


def pythons() -> list[str]:
    """One of each version from 3.10 on."""
    found = {}
    places = [*glob.glob(os.path.expanduser("~/.pyenv/versions/3.1[0-9]*/bin/python3")), shutil.which("python3"), sys.executable]
    for place in filter(None, places):
        version = subprocess.run([place, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True).stdout
        if version and eval(version) >= (3, 10):
            found.setdefault(version, place)
    return list(found.values())


@pytest.mark.slow
def test_one_wheel_for_every_python(site, tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "STARLANE"))}
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT / "python")], check=True,
                   env=env, timeout=1800)
    (wheel,) = tmp_path.glob("*.whl")
    assert "py3-none-" in wheel.name
    for number, python in enumerate(pythons()):
        venv = tmp_path / f"venv{number}"
        subprocess.run([python, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "-q", "--no-index", wheel], check=True, env=env)
        said = subprocess.run([venv / "bin/python", "-c", SCRIPT, site.dir], capture_output=True, text=True, env=env, cwd=tmp_path)
        assert (said.returncode, said.stderr) == (0, ""), python
        assert "'work'" in said.stdout
    assert pathlib.Path(site.mount, "volumes/work/wheel").exists()
