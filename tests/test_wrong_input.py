"""Wrong input and damaged places: one clear sentence, an exit code, and nothing is lost."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import pytest

from conftest import BINARY, wait_until


def starlane(*arguments, **more):
    return subprocess.run([str(BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=60, **more)


def refused(done, *words, code=1):
    assert done.returncode == code, done
    lines = [line for line in done.stderr.splitlines() if line.startswith("starlane:")]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], lines[0]


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("volume",), ("volume", "create"), ("up", "--nonsense"),
                                       ("dataset", "publish", "only-one"), ("up", "--meta-cache", "lots")])
def test_wrong_usage(arguments):
    done = starlane(*arguments)
    assert done.returncode == 2 and "--help" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_commands_without_a_site(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "STARLANE_DIR"}
    refused(starlane("status", env=environment), "--dir")
    refused(starlane("--dir", tmp_path / "none", "status"), "not a Starlane directory")
    refused(starlane("up", "--mount", tmp_path, env=environment), "--dir")
    refused(starlane("up", "--dir", tmp_path / "x", env=environment), "--mount")


def test_a_foreign_directory_is_left_alone(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/precious").write_text("data")
    (tmp_path / "mnt").mkdir()
    refused(starlane("up", "--dir", tmp_path / "full", "--mount", tmp_path / "mnt"), "not empty")
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["precious"]


def test_wrong_mountpoints(make_site, tmp_path):
    site = make_site()
    refused(starlane("up", "--dir", site.dir, "--mount", tmp_path / "missing"), "missing")
    (tmp_path / "file").touch()
    refused(starlane("up", "--dir", site.dir, "--mount", tmp_path / "file"), "not a directory")
    refused(starlane("up", "--dir", site.dir, "--mount", site.directory), "hide")
    site.up()
    refused(starlane("--dir", site.dir, "mount", site.mount), str(site.mount))


def test_two_ups_on_one_directory(make_site, tmp_path):
    site = make_site()
    site.up()
    volume = site.volume()
    (volume / "f").write_text("safe")
    refused(starlane("up", "--dir", site.dir, "--mount", tmp_path), "in use", "down")
    assert (volume / "f").read_text() == "safe"


def test_nobody_serves(make_site):
    site = make_site()
    site.up()
    assert site.down() == 0
    refused(site.run("status", check=False), "up")


def test_down_stops_it(make_site):
    site = make_site()
    site.up()
    site.volume()
    assert "stopped" in site.run("down").stdout
    assert site.process.wait(30) == 0
    assert "nothing" in site.run("down").stdout


def test_a_port_in_use(make_site):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        site = make_site()
        refused(starlane("up", "--dir", site.dir, "--mount", site.mount, "--meta-listen", f"tcp:127.0.0.1:{port}"),
                str(port))


def test_settings_file(make_site):
    site = make_site()
    site.up()
    assert site.down() == 0
    config = site.dir / "starlane.toml"
    config.write_text("meta-workers = 4\nno-such-thing = 1\n")
    refused(starlane("up", "--dir", site.dir, "--mount", site.mount), "starlane.toml:2", "no-such-thing")
    config.write_text("meta-workers = 0\n")
    refused(starlane("up", "--dir", site.dir, "--mount", site.mount), "starlane.toml:1", "meta-workers")
    config.write_text("meta-workers = \n")
    refused(starlane("up", "--dir", site.dir, "--mount", site.mount), "starlane.toml:1")
    config.write_text("meta-workers = 4\n")
    site.up()
    assert site.down() == 0
    shown = starlane("up", "--dir", site.dir, "--print-config", "--store-dir", "/a", "--store-dir", "/b", "--no-passthrough")
    for line in ('meta-workers = "4"', 'store-dir = ["/a", "/b"]', "no-passthrough = true"):
        assert line in shown.stdout.splitlines() or line.replace('"', "'") in shown.stdout.splitlines(), shown.stdout
    assert re.search(r"^# dirty = .[0-9]+MiB.$", shown.stdout, re.M), "what this machine's memory gives it"
    config.write_text("no-passthrough = true\n")
    site.up()
    assert site.json("status")["roles"]["mount"]["figures"]["passthrough"].startswith("off")


def test_a_newer_or_damaged_site(make_site):
    site = make_site()
    site.up()
    (site.volume() / "f").write_text("safe")
    assert site.down() == 0
    identity = site.dir / "site.json"
    good = identity.read_text()
    identity.write_text(json.dumps({**json.loads(good), "format": 99}))
    refused(starlane("up", "--dir", site.dir, "--mount", site.mount), "99")
    identity.write_text("garbage")
    refused(starlane("up", "--dir", site.dir, "--mount", site.mount), "damaged")
    identity.write_text(good)
    key = site.dir / "key"
    key.chmod(0o644)
    refused(starlane("up", "--dir", site.dir, "--mount", site.mount), "key")
    key.chmod(0o600)
    site.up()
    assert (site.mount / "volumes/work/f").read_text() == "safe"


def test_a_foreign_store(make_site, tmp_path):
    one, two = make_site(), make_site()
    one.up()
    assert one.down() == 0
    shutil.copytree(one.dir / "store", tmp_path / "stolen")
    refused(starlane("up", "--dir", two.dir, "--mount", two.mount, "--store-dir", tmp_path / "stolen"), "stolen")


def test_volume_names_and_deletion(make_site):
    site = make_site()
    site.up()
    for name in ("", "UPPER", "a/b", "..", "x" * 64):
        refused(site.run("volume", "create", name, check=False), "name" if name else "")
    site.run("volume", "create", "a")
    refused(site.run("volume", "create", "a", check=False), "a")
    refused(site.run("volume", "show", "b", check=False), "b")
    refused(site.run("volume", "delete", "b", check=False), "b")
    site.run("volume", "delete", "a", "--force")
    wait_until(lambda: site.json("volume", "list") == [])


def test_publishing_what_cannot_be(make_site, tmp_path):
    site = make_site()
    site.up()
    refused(site.run("dataset", "publish", str(tmp_path / "none"), "a", "v1", check=False), "does not exist")
    (tmp_path / "file").touch()
    refused(site.run("dataset", "publish", str(tmp_path / "file"), "a", "v1", check=False), "directory")
    os.mkfifo(tmp_path / "pipe")
    refused(site.run("dataset", "publish", str(tmp_path), "a", "v1", check=False), "pipe")
    refused(site.run("dataset", "verify", "a", "v1", check=False), "a")
    refused(site.run("warm", str(tmp_path), check=False), "not on a Starlane mount")


def test_garbage_on_the_sockets_harms_nobody(make_site):
    site = make_site()
    site.up()
    volume = site.volume()
    for role in ("meta", "store"):
        for garbage in (b"\xff" * 64, b"", os.urandom(4096), b"GET / HTTP/1.1\r\n\r\n"):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(site.dir / f"run/{role}.sock"))
                try:
                    peer.sendall(garbage)
                except OSError:
                    pass
    (volume / "f").write_text("fine")
    assert (volume / "f").read_text() == "fine"
    site.run("status")


def test_without_root_it_works_and_says_so(make_site):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root to become somebody else, and setpriv")
    site = make_site()
    site.directory.chmod(0o755)
    os.chown(site.directory, 65534, 65534)
    os.chown(site.mount, 65534, 65534)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*nobody, "test", "-w", "/dev/fuse"], check=False).returncode != 0:
        pytest.skip("other users may not open /dev/fuse on this machine")
    log = open(site.directory / "up.log", "w")
    site.process = subprocess.Popen([*nobody, str(BINARY), "up", "--dir", str(site.dir), "--mount", str(site.mount)],
                                    stdout=subprocess.PIPE, stderr=log, text=True)
    site.wait_ready()
    script = "mkdir -p w && cd w && echo hello > f && cat f"
    subprocess.run([*nobody, str(BINARY), "--dir", str(site.dir), "volume", "create", "work"], check=True,
                   capture_output=True)
    done = subprocess.run([*nobody, "bash", "-c", f"cd {site.mount}/volumes/work && {script}"], capture_output=True,
                          text=True)
    assert done.stdout == "hello\n", done.stderr
    status = subprocess.run([*nobody, str(BINARY), "--dir", str(site.dir), "status"], capture_output=True, text=True)
    assert "root" in status.stdout


def test_ctrl_c_ends_a_role_that_waits_for_its_server(tmp_path):
    (tmp_path / "key").write_text("0" * 64 + "\n")
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "mnt").mkdir()
    command = [str(BINARY), "mount", str(tmp_path / "mnt"), "--meta", "tcp:127.0.0.1:1", "--key", str(tmp_path / "key")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
