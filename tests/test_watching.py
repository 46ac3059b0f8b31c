"""What an operator sees: metrics as a real Prometheus parser reads them, stats, profile, the access log and its replay,
doctor, the bundle for a bug report, and one request's id in the logs of every process."""

import http.client
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import BINARY, wait_until
from test_operating import free_port

MIB = 1 << 20


def page(place: str, target: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    """A page of a console, by Python's own HTTP client."""
    if place.startswith("unix:"):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(place[5:])
    else:
        connection = http.client.HTTPConnection(place)
    connection.request(method, target)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


class Metrics:
    """All metrics of a site, from the sockets that `status` names."""

    def __init__(self, site):
        self.samples = []
        places = {place for role in site.json("status")["roles"].values() for place in role["metrics"]
                  if place.startswith("unix:")}
        assert places
        for place in places:
            status, text = page(place)
            assert status == 200
            for family in text_string_to_metric_families(text):
                assert family.documentation, family.name
                self.samples += family.samples

    def __call__(self, name: str, **labels) -> float:
        found = [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        assert found, f"no {name} {labels}"
        return sum(found)

    def has(self, name: str) -> bool:
        return any(s.name == name for s in self.samples)


def test_metrics_say_what_was_done(site):
    volume = site.volume()
    before = Metrics(site)
    data = os.urandom(12 * MIB)
    with open(volume / "f", "wb") as f:
        f.write(data)
        os.fsync(f.fileno())
    for n in range(50):
        (volume / f"d{n}").mkdir()
    for n in range(10):
        with pytest.raises(FileNotFoundError):
            (volume / f"none{n}").stat()
    with os.fdopen(os.open(volume / "f", os.O_RDONLY | os.O_DIRECT), "rb", buffering=0) as f:
        room = mmap.mmap(-1, 4 * MIB)  # aligned, as O_DIRECT wants it
        assert sum(iter(lambda: f.readinto(room), 0)) == len(data)
    after = Metrics(site)

    def grown(name, **labels):
        old = sum(s.value for s in before.samples if s.name == name and labels.items() <= s.labels.items())
        return after(name, **labels) - old

    assert grown("starlane_fuse_operation_seconds_count", operation="MKDIR") == 50
    assert grown("starlane_fuse_operation_failures_total", operation="LOOKUP") >= 10
    assert grown("starlane_fuse_written_bytes_total") == len(data)
    assert grown("starlane_fuse_read_bytes_total") == len(data)
    assert grown("starlane_client_store_put_bytes_total") == len(data)
    assert grown("starlane_store_put_bytes_total") == len(data)
    assert grown("starlane_client_meta_call_seconds_count", call="make_directory") == 50
    assert grown("starlane_meta_call_seconds_count", call="make_directory") == 50
    assert grown("starlane_engine_commit_seconds_count") >= 51
    assert grown("starlane_engine_flush_seconds_count") >= 1
    assert grown("starlane_store_call_seconds_count", call="sync") >= 1
    # The client's time has the way in it, the server's has not.
    assert grown("starlane_client_meta_call_seconds_sum", call="make_directory") >= \
        grown("starlane_meta_call_seconds_sum", call="make_directory")
    assert after("starlane_store_free_bytes") > 0
    limit = re.search(r"^# dirty = .(\d+)MiB.$", site.run("up", "--print-config").stdout, re.M)
    assert after("starlane_client_dirty_limit_bytes") == int(limit[1]) * MIB
    for name in ("starlane_keeper_runs_total", "starlane_node_cache_budget_bytes", "starlane_rpc_workers",
                 "starlane_rpc_queued", "starlane_client_cache_lookups_total", "process_resident_memory_bytes"):
        assert after.has(name), name
    processes = {s.labels["process"] for s in after.samples if s.name == "starlane_info"}
    assert processes == ({"meta", "store", "keeper", "mount"} if site.separate else {"up"})
    if site.separate:
        assert grown("starlane_rpc_calls_total", service="meta") > 50
        assert grown("starlane_rpc_way_seconds_count", purpose="meta") > 50
        assert grown("starlane_rpc_way_seconds_sum", purpose="meta") > 0


def test_metrics_on_tcp_are_on_loopback_and_nothing_else_is_there(make_site):
    site = make_site()
    port = free_port()
    site.up("--metrics", str(port))
    roles = site.json("status")["roles"]
    assert f"127.0.0.1:{port}" in roles["meta"]["metrics"]
    status, text = page(f"127.0.0.1:{port}")
    assert status == 200 and "starlane_fuse_requests_total" in text
    for target, method in (("/profile", "GET"), ("/access-log?file=/tmp/x", "POST"), ("/key", "GET")):
        assert page(f"127.0.0.1:{port}", target, method)[0] == 404
    done = site.run("stats", "--at", f"127.0.0.1:{port}", "--interval", "0.05", "--count", "1")
    assert len(done.stdout.splitlines()) == 2
    (site.directory / "other-mnt").mkdir()
    taken = subprocess.run([BINARY, "up", "--dir", site.directory / "other", "--mount", site.directory / "other-mnt",
                            "--metrics", str(port)], capture_output=True, text=True)
    assert taken.returncode == 1 and str(port) in taken.stderr and len(taken.stderr.splitlines()) == 1
    wrong = subprocess.run([BINARY, "up", "--dir", site.directory / "other", "--mount", site.directory / "other-mnt",
                            "--metrics", "here"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "PORT or HOST:PORT, not here" in wrong.stderr and len(wrong.stderr.splitlines()) == 1


def test_a_site_whose_path_is_too_long_for_a_socket_is_seen_too(make_site):
    site = make_site()
    deep = site.directory / ("deep" * 30)
    deep.mkdir()
    site.dir = deep / "site"
    site.up()
    assert Metrics(site).has("starlane_info")
    assert len(site.run("stats", "--interval", "0.05", "--count", "1").stdout.splitlines()) == 2
    assert site.down() == 0
    assert not list(pathlib.Path("/tmp").glob("starlane-*-metrics-up.sock"))


def test_each_role_apart_has_a_port_of_its_own(make_site):
    site = make_site(separate=True)
    port = free_port()
    site.up("--metrics", f"127.0.0.1:{port}")
    for place, name in enumerate(("meta", "store", "keeper", "mount")):
        assert f'process="{name}"' in page(f"127.0.0.1:{port + place}")[1]


def test_metrics_come_back_with_a_role_that_was_killed(make_site):
    site = make_site(separate=True)
    site.up()
    site.kill("meta")
    wait_until(lambda: site.run("volume", "create", "work", check=False).returncode == 0)
    assert wait_until(lambda: Metrics(site)("starlane_meta_call_seconds_count", call="volume_create")) >= 1


def test_stats_prints_a_line_an_interval(site):
    volume = site.volume()
    stop = threading.Event()

    def work():
        n = 0
        while not stop.is_set():
            (volume / f"w{n % 8}").write_bytes(b"x" * MIB)
            n += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        text = site.run("stats", "--interval", "0.5", "--count", "3").stdout.splitlines()
        lines = [json.loads(line) for line in
                 site.run("--json", "stats", "--interval", "0.5", "--count", "4").stdout.splitlines()]
    finally:
        stop.set()
        worker.join()
    assert len(text) == 4 and "OPS/S" in text[0] and "DIRTY" in text[0]
    assert len(text[1].split()) == 13
    assert len(lines) == 4
    assert max(line["written_bytes_per_second"] for line in lines) > MIB
    assert max(line["operations_per_second"] for line in lines) > 1
    assert max(line["meta_calls_per_second"] for line in lines) > 0
    assert all(0 <= (line["name_cache_hit_share"] or 0) <= 1 for line in lines)


def test_stats_ends_well_and_says_when_nothing_runs(make_site):
    site = make_site()
    site.up()
    running = subprocess.Popen([BINARY, "--dir", site.dir, "stats", "--interval", "0.1"], stdout=subprocess.PIPE, text=True)
    running.stdout.readline()
    running.send_signal(signal.SIGINT)
    assert running.wait(10) == 0
    assert site.down() == 0
    for command in ("stats", "profile", "access-log show"):
        done = site.run(*command.split(), check=False)
        assert done.returncode == 1 and "starlane up" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_profile_tells_processes_apart(site):
    volume = site.volume()
    script = "import os,sys\nfor i in range(300): os.mkdir(sys.argv[1] + f'/p{i}')\nsys.stdin.read()"
    watching = subprocess.Popen([BINARY, "--dir", site.dir, "--json", "profile", "--for", "4s"], stdout=subprocess.PIPE,
                                text=True)
    time.sleep(1)  # it has begun: what comes before is not counted
    busy = subprocess.Popen(["python3", "-c", script, volume], stdin=subprocess.PIPE)
    out, _ = watching.communicate(timeout=60)
    busy.communicate()
    profile = json.loads(out)
    made = [row for row in profile["rows"] if row["operation"] == "mkdir" and row["pid"] == busy.pid]
    assert len(made) == 1 and made[0]["process"].startswith("python3")
    assert made[0]["count"] == 300 and made[0]["errors"] == 0
    assert made[0]["total_ns"] / 300 <= made[0]["p99_ns"] * 1.5
    assert profile["dropped"] == 0
    table = site.run("profile", "--for", "1").stdout
    assert "OPERATION" in table and "PROCESS" in table
    assert site.run("profile", check=False).returncode == 1  # no terminal, and no end


def read_log(file: pathlib.Path) -> list[dict]:
    lines = file.read_text().splitlines()
    names = lines[0].split(": ", 1)[1].split()
    return [dict(zip(names, line.split(" "), strict=True)) for line in lines[1:]]


def work_in(volume: pathlib.Path) -> None:
    (volume / "tree").mkdir()
    for n in range(20):
        (volume / f"tree/file {n}").write_bytes(b"y" * 10_000 * n)
    for n in range(20):
        assert len((volume / f"tree/file {n}").read_bytes()) == 10_000 * n
    (volume / "tree/file 3").rename(volume / "moved")
    (volume / "tree/file 4").unlink()
    os.symlink("moved", volume / "link")
    os.truncate(volume / "moved", 5)
    os.chmod(volume / "moved", 0o600)
    assert os.readlink(volume / "link") == "moved"
    assert len(os.listdir(volume / "tree")) == 18
    with pytest.raises(FileNotFoundError):
        (volume / "nothing").read_bytes()


@pytest.mark.parametrize("how", ["from the start", "later"])
def test_an_access_log_is_complete_and_can_be_replayed(make_site, tmp_path, how):
    site = make_site()
    log = tmp_path / "access.log"
    if how == "from the start":
        site.up("--access-log", str(log))
        volume = site.volume()
    else:
        site.up()
        volume = site.volume()
        (volume / "known").mkdir()  # the kernel knows these nodes already
        assert str(log) in site.run("access-log", "start", str(log)).stdout
        again = site.run("access-log", "start", str(tmp_path / "second"), check=False)
        assert again.returncode == 1 and "already" in again.stderr
    work_in(volume)
    state = json.loads(site.run("--json", "access-log", "show").stdout)
    assert state == {"file": str(log), "dropped": 0}
    assert site.run("access-log", "stop").returncode == 0
    entries = read_log(log)
    writes = [e for e in entries if e["operation"] == "write"]
    assert sum(int(e["length"]) for e in writes) == sum(10_000 * n for n in range(20))
    assert all(e["path"].startswith("volumes/work/tree/file%20") for e in writes)
    assert {int(e["pid"]) for e in writes} == {os.getpid()}
    assert all(e["error"] == "0" for e in writes)
    assert any(e["operation"].startswith("rename") and e["other"] == "volumes/work/moved" for e in entries)
    assert not any(e["path"].startswith("inode:") for e in entries if e["operation"] not in ("release", "forget"))
    (volume / "unseen").mkdir()
    assert "unseen" not in log.read_text()

    into = tmp_path / "again"
    done = json.loads(site.run("--json", "replay", str(log), "--into", str(into)).stdout)
    operations = done["operations"]
    # Which names the kernel asks for again depends on when: what it had cached may have aged.
    assert {name: line["differ"] for name, line in operations.items() if line["differ"] and name != "lookup"} == {}
    assert operations["write"]["bytes"] == sum(10_000 * n for n in range(20))
    assert (into / "volumes/work/moved").stat().st_size == 5
    assert sorted(p.name for p in (into / "volumes/work/tree").iterdir()) == \
        sorted(f"file {n}" for n in range(20) if n not in (3, 4))
    on_volume = site.volume("second")
    table = site.run("replay", str(log), "--into", str(on_volume / "again")).stdout
    assert "NOW/LOGGED" in table and "write" in table
    refused = site.run("replay", str(log), "--into", str(into), check=False)
    assert refused.returncode == 1 and "empty" in refused.stderr


def test_an_access_log_goes_where_it_may(make_site, tmp_path):
    site = make_site()
    site.up()
    inside = site.run("access-log", "start", str(site.mount / "log"), check=False)
    assert inside.returncode == 1 and "cannot lie in the mount" in inside.stderr
    other = tmp_path / "diary"
    other.write_text("dear diary" * 100)
    refused = site.run("access-log", "start", str(other), check=False)
    assert refused.returncode == 1 and "no access log" in refused.stderr
    assert other.read_text() == "dear diary" * 100
    assert site.run("access-log", "stop", check=False).returncode == 1
    assert site.run("replay", str(other), "--into", str(tmp_path / "x"), check=False).returncode == 1


def test_doctor_works_without_a_site_and_knows_a_running_one(make_site):
    alone = subprocess.run([BINARY, "--json", "doctor"], capture_output=True, text=True)
    checks = json.loads(alone.stdout)
    assert alone.returncode == (1 if any(c["verdict"] == "missing" for c in checks) else 0)
    by_name = {c["what"]: c for c in checks}
    assert by_name["kernel"]["found"] == os.uname().release
    assert by_name["mount"]["verdict"] == "ok"
    assert all(bool(c["remedy"]) == (c["verdict"] != "ok") for c in checks)
    assert not list(pathlib.Path("/tmp").glob("starlane-probe-*"))
    site = make_site(options=("--no-passthrough",))
    site.up()
    shown = {c["what"]: c for c in json.loads(site.run("--json", "doctor", check=False).stdout)}
    off = shown[f"passthrough of {site.mount}"]
    assert off["verdict"] == "warning" and off["found"].startswith("off")
    assert any(what.startswith("device of target") for what in shown)
    text = site.run("doctor", "--no-mount", check=False).stdout
    assert "fast paths" in text and "clock source" in text


def test_a_bundle_has_what_a_report_needs_and_no_secret(site, tmp_path):
    volume = site.volume()
    (volume / "private.txt").write_text("the contents of a user's file")
    archive = tmp_path / "report.tar.gz"
    site.run("--json", "debug", "bundle", str(archive))
    assert archive.stat().st_mode & 0o077 == 0
    with tarfile.open(archive) as tar:
        contents = {"/".join(m.name.split("/")[1:]): tar.extractfile(m).read() for m in tar.getmembers() if m.isfile()}
    for name in ("README.txt", "versions.txt", "doctor.txt", "doctor.json", "status.json"):
        assert contents[name], name
    assert json.loads(contents["status.json"])["volumes"] == 1
    processes = ("meta", "store", "keeper", "mount") if site.separate else ("up",)
    for name in processes:
        assert b"starlane_info" in contents[f"metrics/{name}.txt"]
    numbers = {name.split("/")[1] for name in contents if name.startswith("processes/")}
    assert len(numbers) == (6 if site.separate else 2), "a mount has a holder"
    if subprocess.run(["which", "gdb"], capture_output=True).returncode == 0:
        stacks = b"".join(text for name, text in contents.items() if name.endswith("/stacks"))
        assert stacks.count(b"#0 ") > 5
    whole = b"\n".join(contents.values())
    assert (site.dir / "key").read_text().strip().encode() not in whole
    assert b"the contents of a user's file" not in whole and b"private.txt" not in whole
    again = site.run("debug", "bundle", str(archive), check=False)
    assert again.returncode == 1 and "already" in again.stderr
    assert (volume / "private.txt").read_text()  # nothing was left standing still


def test_one_id_follows_a_request_through_every_process(make_site, tmp_path):
    log = tmp_path / "access.log"
    site = make_site(separate=True, options=("--log-level", "debug", "--access-log", str(log)))
    site.up()
    volume = site.volume()
    with open(volume / "f", "wb") as f:
        f.write(b"z" * MIB)
        os.fsync(f.fileno())
    (volume / "d").mkdir()
    assert site.down() == 0
    entries = read_log(log)
    made = next(e for e in entries if e["operation"] == "mkdir")
    synced = next(e for e in entries if e["operation"] == "fsync")
    logs = {role: (site.dir / f"log/{role}.log").read_text() for role in ("meta", "store", "mount")}
    for entry, call, role in ((made, "make_directory", "meta"), (synced, "sync", "store"), (synced, "flush", "meta")):
        pattern = rf"event=call side={role} call={call} trace={entry['trace']} "
        assert re.search(pattern, logs[role]), pattern
    assert re.search(rf"side=client of meta call=make_directory trace={made['trace']} ", logs["mount"])


def test_slow_operations_are_told_of_with_their_id(make_site):
    site = make_site(separate=True, options=("--slow-ms", "300"))
    site.up()
    volume = site.volume()
    store = site.roles()["store"]
    with open(volume / "f", "wb") as f:
        f.write(b"z" * MIB)
        os.kill(store, signal.SIGSTOP)
        waker = threading.Timer(1.0, os.kill, (store, signal.SIGCONT))
        waker.start()
        os.fsync(f.fileno())
        waker.join()
    log = site.dir / "log/mount.log"
    found = wait_until(lambda: re.search(r"event=slow_operation operation=FSYNC .* trace=([0-9a-f]{16})", log.read_text()))
    assert int(found[1], 16) != 0
    assert re.search(r"event=slow_call side=client of (store|meta)", log.read_text())  # whoever synced the store


def test_metrics_say_what_the_trash_holds(site):
    volume = site.volume()
    site.run("trash", "keep", "work", "1h", "--min-age", "0s")
    (volume / "d").mkdir()
    for n in range(3):
        (volume / f"d/{n}").write_bytes(bytes(100_000))
    assert Metrics(site)("starlane_meta_trash_inodes") == 0
    shutil.rmtree(volume / "d")
    kept = Metrics(site)
    assert kept("starlane_meta_trash_inodes") == 4
    assert kept("starlane_meta_trash_bytes") == 300_000
    site.run("trash", "empty", "work")
    wait_until(lambda: Metrics(site)("starlane_meta_held_bytes") == 0)
    emptied = Metrics(site)
    assert emptied("starlane_meta_trash_bytes") == emptied("starlane_meta_trash_inodes") == 0
