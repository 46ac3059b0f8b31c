"""What the tests of the package share: a real site, started by the real binary, mounted by the kernel, with its store in
memory. One site serves the whole run; each test has a directory of its own in the volume `work`."""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))


def _system_tests():
    """tests/conftest.py, which knows how to start a site and how to hurt it."""
    spec = importlib.util.spec_from_file_location("starlane_system_tests", ROOT / "tests/conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


system = _system_tests()
Site = system.Site
wait_until = system.wait_until


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; run by ./test --all")


def pytest_collection_modifyitems(config, items):
    system.pytest_collection_modifyitems(config, items)


@contextlib.contextmanager
def running_site(*options: str, separate: bool = False) -> Iterator[Site]:
    base = pathlib.Path(tempfile.mkdtemp(prefix="starlane-python-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    site = Site(base, separate, ("--store-dir", str(base / "store"), *options))
    try:
        site.up()
        site.volume("work")
        yield site
    finally:
        site.clean_up()


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A running site with a volume `work`; site.mount is where the kernel has it."""
    with running_site() as one:
        yield one


@pytest.fixture
def own_site() -> Iterator[Site]:
    """A site of the test's own, to be stopped and killed."""
    with running_site() as one:
        yield one


@pytest.fixture
def work(site: Site, request) -> Iterator[pathlib.Path]:
    """An empty directory on the mount, removed afterwards."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:60]
    path = site.mount / "volumes/work" / name
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def python_env() -> dict[str, str]:
    """The environment of a Python process of a test's own that imports this package."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "python")}


def run_python(script: str, env: dict[str, str], *arguments: str, timeout: float = 120) -> str:
    """Its standard output; fails with its standard error."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout
