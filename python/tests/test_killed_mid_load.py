"""kill -9 of what serves a load, in the middle of it: the load waits until somebody serves again, and ends with the right bits."""

import concurrent.futures
import json
import os
import random
import signal
import threading
import time

import pytest
import safetensors.torch
import torch
from checkpoints import assert_same
from conftest import running_site, wait_until

import starlane.torch as st
from starlane import metrics
from starlane.torch import _source

torch.set_num_threads(1)
FETCHED = "starlane_client_store_get_bytes_total"
TENSORS, TENSOR = 40, 8 << 20  # how many, of how many bytes: as many reads as tensors
READS = 2  # before the kill: a mount reads far ahead of who reads
LIMIT = 180  # seconds, for a test that would hang


@pytest.fixture(scope="module")
def state():
    return {f"t{number}": torch.randint(-30000, 30000, (TENSOR // 2,), dtype=torch.int16) for number in range(TENSORS)}


def process_of(site, role: str) -> int:
    return json.loads((site.dir / f"run/{role}.json").read_text())["pid"]


def kill(site, role: str) -> int:
    """Whoever has that role, and with it all others that are in one process with it. Nobody waits for the next here."""
    pid = process_of(site, role)
    os.kill(pid, signal.SIGKILL)
    return pid


def cold(site) -> None:
    """So that bytes have to come from the store, through what is to be killed."""
    assert site.down() == 0
    site.up()


def load(path):
    """As a user's thread would, but not for ever."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    try:
        return pool.submit(st.load_file, path).result(timeout=LIMIT)
    finally:
        pool.shutdown(wait=False)


class Counted:
    """Reads of a source; the one after READS others have come back kills, and goes on as if it knew nothing."""

    def __init__(self, monkeypatch, source, kills):
        self.done = self.at_kill = 0
        self._lock, self._killed = threading.Lock(), False
        read = source.read_into

        def counted(this, offset, segments):
            if sum(length for _, length in segments) < 1 << 20:
                return read(this, offset, segments)  # the file's directory
            with self._lock:
                if self.done >= READS and not self._killed:
                    self._killed, self.at_kill = True, self.done
                    kills()
            read(this, offset, segments)
            with self._lock:
                self.done += 1
            return None

        monkeypatch.setattr(source, "read_into", counted)


def load_and_kill(monkeypatch, site, path, source, role, state):
    """Bytes have flown by then, and others are still to come; the other one serves when it is over."""
    victims, fetched = [], []

    def kills() -> None:
        fetched.append(metrics.totals(site.dir)[FETCHED])  # by the mount
        victims.append(kill(site, role))

    counted = Counted(monkeypatch, source, kills)
    assert_same(load(path), state)
    assert READS <= counted.at_kill < TENSORS <= counted.done
    assert fetched[0] < TENSORS * TENSOR
    wait_until(lambda: process_of(site, role) != victims[0])


@pytest.mark.parametrize("role", ["all in one", "mount", "store", "meta"])
def test_through_the_mount(monkeypatch, state, role):
    """Without passthrough, so that reads ask the daemon for what it has not sent ahead."""
    with running_site("--no-passthrough", separate=role != "all in one") as site:
        path = site.mount / "volumes/work/model.safetensors"
        safetensors.torch.save_file(state, path)
        cold(site)
        load_and_kill(monkeypatch, site, path, _source.FileSource, "mount" if role == "all in one" else role, state)
        assert_same(load(path), state)


@pytest.mark.parametrize("role", ["all in one", "store", "meta"])
def test_by_the_c_interface(monkeypatch, state, role):
    with running_site(separate=role != "all in one") as site:
        safetensors.torch.save_file(state, site.mount / "volumes/work/model.safetensors")
        cold(site)
        monkeypatch.setenv("STARLANE_DIR", str(site.dir))
        path = "starlane:///volumes/work/model.safetensors"
        load_and_kill(monkeypatch, site, path, _source.SiteSource, "store" if role == "all in one" else role, state)
        assert_same(load(path), state)


def test_everything_gone_for_a_while_by_the_c_interface(monkeypatch, state):
    """Nobody restarts it by itself: a load waits for the site to be started again by hand."""
    with running_site() as site:
        safetensors.torch.save_file(state, site.mount / "volumes/work/model.safetensors")
        cold(site)
        monkeypatch.setenv("STARLANE_DIR", str(site.dir))
        gone = threading.Event()

        def kill_all() -> None:
            site.kill_all()
            gone.set()

        counted = Counted(monkeypatch, _source.SiteSource, kill_all)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            loading = pool.submit(load, "starlane:///volumes/work/model.safetensors")
            wait_until(lambda: gone.is_set() or loading.done(), LIMIT)
            time.sleep(1)
            assert not loading.done()  # it waits
            os.system(f"umount -l {site.mount}")
            site.up()
            assert_same(loading.result(), state)
        assert READS <= counted.at_kill < TENSORS <= counted.done


def test_whenever_it_is_killed(state):
    """With passthrough: while the file is copied into the node cache, while an open waits for that, while it is read."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with running_site() as site:
        path = site.mount / "volumes/work/model.safetensors"
        safetensors.torch.save_file(state, path)
        for _ in range(6):
            cold(site)
            timer = threading.Timer(rng.uniform(0, 0.25), kill, (site, "mount"))
            timer.start()
            assert_same(load(path), state)
            timer.join()
