"""Large files through the host's cache: fetched once, mapped by everyone, right after every change; and the same bytes
where passthrough is off."""

import hashlib
import mmap
import multiprocessing
import os
import random
import resource

import pytest

from conftest import Mount, wait_until

MIB = 1 << 20
SIZE = 96 * MIB + 12_345


@pytest.fixture(params=[(), ("--no-passthrough",), ("--ucx",)], ids=lambda options: options[0][2:] if options else "default")
def volume(request, make_site):
    site = make_site(separate=True, options=request.param)
    site.up()
    path = site.volume()
    shown = figures(site)
    assert shown["passthrough"].startswith("off") or "--no-passthrough" not in request.param
    assert shown["bulk"].startswith("ucx" if "--ucx" in request.param else "shared memory")
    return site, path


def figures(site) -> dict:
    return wait_until(lambda: site.json("status")["roles"]["mount"]["figures"])


def content(seed: int) -> bytes:
    return random.Random(seed).randbytes(SIZE)


def digest_of_map(path) -> str:
    """Maps the file privately, as torch does, and hashes it out of order."""
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    pieces = {}
    for at in sorted(range(0, len(mapped), 3 * MIB), key=lambda n: hash((n, 7))):
        pieces[at] = bytes(mapped[at : at + 3 * MIB])
    mapped.close()
    return hashlib.sha256(b"".join(pieces[at] for at in sorted(pieces))).hexdigest()


def child(path, results):
    before = resource.getrusage(resource.RUSAGE_SELF)
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    total = sum(mapped[at] for at in range(0, len(mapped), 4096))
    after = resource.getrusage(resource.RUSAGE_SELF)
    results.put((total, after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt))


def test_every_way_of_reading_sees_the_same_bytes(volume):
    _, path = volume
    data = content(1)
    (path / "f").write_bytes(data)
    expected = hashlib.sha256(data).hexdigest()
    for _ in range(3):
        assert digest_of_map(path / "f") == expected
        assert hashlib.sha256((path / "f").read_bytes()).hexdigest() == expected
    with open(path / "f", "rb") as first, open(path / "f", "rb") as second:
        assert first.read(MIB) == second.read(MIB) == data[:MIB]


def test_eight_processes_fetch_a_cold_file_once(volume):
    site, path = volume
    (path / "f").write_bytes(content(2))
    mount = site.roles()["mount"]
    site.kill("mount")
    wait_until((path / "f").is_file)
    assert site.roles()["mount"] != mount
    results = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=child, args=(path / "f", results)) for _ in range(8)]
    for process in processes:
        process.start()
    totals = [results.get(timeout=120)[0] for _ in processes]
    for process in processes:
        process.join()
    assert len(set(totals)) == 1
    wait_until(lambda: SIZE <= figures(site)["fetched_bytes"])
    # Without passthrough, pages pushed ahead and pages asked for may cross.
    limit = 1.05 if figures(site)["passthrough"] == "on" else 2.5
    assert figures(site)["fetched_bytes"] <= limit * SIZE


def test_a_second_process_maps_huge_pages(make_site):
    if os.geteuid() != 0:
        pytest.skip("passthrough needs root")
    site = make_site()
    site.up()
    path = site.volume()
    if figures(site)["passthrough"] != "on":
        pytest.skip("no passthrough here: " + figures(site)["passthrough"])
    (path / "f").write_bytes(content(3))
    results = multiprocessing.Queue()
    for _ in range(3):
        process = multiprocessing.Process(target=child, args=(path / "f", results))
        process.start()
        _, faults = results.get(timeout=120)
        process.join()
    assert faults < 1000 * SIZE / (1 << 30) + 200, "a few belong to the interpreter"


def test_changes_reach_later_opens_and_old_maps_keep_their_version(volume):
    _, path = volume
    old, new = content(4), content(5)
    (path / "f").write_bytes(old)
    digest_of_map(path / "f")
    with open(path / "f", "rb") as file:
        kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        (path / "new").write_bytes(new)
        os.rename(path / "new", path / "f")
        assert digest_of_map(path / "f") == hashlib.sha256(new).hexdigest()
        assert hashlib.sha256(kept).hexdigest() == hashlib.sha256(old).hexdigest()
        kept.close()
    with open(path / "f", "r+b") as file:  # in place
        file.seek(50 * MIB)
        file.write(b"in place")
    changed = new[: 50 * MIB] + b"in place" + new[50 * MIB + 8 :]
    assert digest_of_map(path / "f") == hashlib.sha256(changed).hexdigest()


def test_a_remote_change_reaches_the_next_open(make_site):
    site = make_site()
    site.up()
    path = site.volume()
    with Mount(site) as second:
        for seed in (6, 7):
            (path / "f").write_bytes(content(seed))
            wait_until((second / "f").is_file)
            for _ in range(2):
                assert digest_of_map(second / "f") == hashlib.sha256(content(seed)).hexdigest()


def test_warm_fills_the_cache(make_site):
    site = make_site()
    site.up()
    path = site.volume()
    (path / "d").mkdir()
    (path / "d/f").write_bytes(content(8))
    (path / "d/small").write_bytes(b"x" * 1000)
    assert "2 files" in site.run("warm", str(path / "d")).stdout
    assert digest_of_map(path / "d/f") == hashlib.sha256(content(8)).hexdigest()
