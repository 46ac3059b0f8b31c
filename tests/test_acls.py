"""POSIX access lists, and what else depends on who asks: the same commands on a volume and on a local file system, with the
same outcome, and access as the kernel grants it."""

import os
import pathlib
import random
import shutil
import subprocess
import tempfile

import pytest

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@pytest.fixture
def volume(site):
    os.chmod(site.directory, 0o755)
    path = site.volume()
    yield path
    assert site.fsck()["problems"] == []


@pytest.fixture
def local():
    """A directory of a local file system with access lists (ext4, or tmpfs)."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="starlane-acl-", dir="/tmp"))
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


def run(directory, *command, check=True, umask=0o022):
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, umask=umask)
    assert not check or done.returncode == 0, (command, done.stderr)
    return done


def acls_of(directory):
    return run(directory, "sh", "-c", "find . ! -type l | sort | xargs getfacl -n -p").stdout


def as_nobody(directory, command):
    return run(directory, *AS_NOBODY, "sh", "-c", command, check=False).returncode == 0


def test_random_commands_end_as_on_a_local_file_system(volume, local):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    names = []

    def permissions():
        return "".join(rng.choice([letter, "-"]) for letter in "rwx")

    def entries():
        kinds = ["u::", "g::", "o::", "u:7:", "u:8:", "g:7:", "g:9:", "m::"]
        return ",".join(kind + permissions() for kind in rng.sample(kinds, rng.randrange(1, 5)))

    for step in range(400):
        parent = rng.choice(["."] + [n for n, directory in names if directory])
        name, directory = rng.choice(names or [(".", True)])
        new = f"{parent}/{step}"
        commands = [
            (["setfacl", "-m", entries(), name], None),
            (["setfacl", "-m", entries(), name], None),
            (["setfacl", "-d", "-m", entries(), parent], None),
            (["setfacl", rng.choice(["-b", "-k"]), name], None),
            (["setfacl", "-x", rng.choice(["u:7", "g:9", "m"]), name], None),
            (["chmod", f"{rng.randrange(0o10000):o}", name], None),
            (["chown", f"{rng.randrange(10)}:{rng.randrange(10)}", name], None),
            (["touch", new], (new, False)),
            (["mkdir", new], (new, True)),
            (["mkdir", "-m", f"{rng.randrange(0o1000):o}", new], (new, True)),
            (["mknod", new, "p"], (new, False)),
            (["ln", "-s", "nowhere", new], (new, None)),
        ]
        command, made = rng.choice(commands)
        if directory is None and command[0] != "ln" and not made:
            continue  # a link to nothing
        umask = rng.randrange(0o1000)
        codes = [run(where, *command, check=False, umask=umask).returncode for where in (volume, local)]
        assert codes[0] == codes[1], (step, command)
        if made and codes[0] == 0 and made[1] is not None:
            names.append(made)
        if step % 5 == 0:
            assert acls_of(volume) == acls_of(local), (step, command)
    assert acls_of(volume) == acls_of(local)


def test_the_kernel_grants_what_the_list_says(volume):
    (volume / "secret").write_text("for nobody")
    (volume / "secret").chmod(0o640)
    assert not as_nobody(volume, "cat secret")
    run(volume, "setfacl", "-m", f"u:{NOBODY}:r", "secret")
    assert as_nobody(volume, "cat secret")
    assert not as_nobody(volume, "echo more >> secret")
    run(volume, "setfacl", "-m", "m::-", "secret")  # masked
    assert not as_nobody(volume, "cat secret")
    (volume / "secret").chmod(0o640)
    assert as_nobody(volume, "cat secret")
    run(volume, "setfacl", "-x", f"u:{NOBODY}", "secret")
    assert not as_nobody(volume, "cat secret")

    (volume / "drop").mkdir(mode=0o700)
    assert not as_nobody(volume, "touch drop/f")
    run(volume, "setfacl", "-m", f"u:{NOBODY}:rwx,d:u:{NOBODY}:rwx", "drop")
    (volume / "drop/of root").write_text("x")
    assert as_nobody(volume, "touch drop/f && echo x >> 'drop/of root' && ls drop")


def test_who_may_change_a_list(volume):
    (volume / "f").touch()
    assert not as_nobody(volume, f"setfacl -m u:{NOBODY}:rw f")
    os.chown(volume / "f", NOBODY, NOBODY)
    assert as_nobody(volume, f"setfacl -m u:7:rw f")
    # Outside the file's group its owner loses the setgid bit.
    os.chown(volume / "f", NOBODY, 0)
    os.chmod(volume / "f", 0o2770)
    assert as_nobody(volume, f"setfacl -m u:8:rw f")
    assert (volume / "f").stat().st_mode & 0o7000 == 0
    assert run(volume, "setfacl", "-d", "-m", "u:7:r", "f", check=False).returncode != 0


def test_lists_travel_with_copies_and_between_mounts(mounts):
    one, two = mounts
    (one / "d").mkdir()
    run(one, "setfacl", "-m", "u:7:rwx,d:g:9:rx", "d")
    assert run(two, "getfacl", "-n", "d").stdout == run(one, "getfacl", "-n", "d").stdout
    (two / "d/f").write_text("x")
    assert "group:9:r-x" in run(one, "getfacl", "-n", "d/f").stdout
    run(two, "cp", "-a", "d", "copy")
    expected = run(one, "getfacl", "-R", "-n", "d").stdout
    assert run(one, "getfacl", "-R", "-n", "copy").stdout == expected.replace("file: d", "file: copy")


CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")  # cap_net_bind_service=ep


def test_privileges_go_as_on_a_local_file_system(volume, local):
    """setuid, setgid and capabilities, after writes and changes of owner, by root and by the owner, with a list and without."""

    def outcome(where, acl, mode, deed):
        file = where / "program"
        file.write_text("x")
        os.chown(file, NOBODY, NOBODY)
        if acl:
            run(where, "setfacl", "-m", acl, "program")
        os.chmod(file, mode)
        os.setxattr(file, "security.capability", CAPABILITY)
        run(where, *deed, check=False)
        kept = "security.capability" in os.listxattr(file)
        mode = file.stat().st_mode & 0o7777
        shown = run(where, "getfacl", "-n", "program").stdout
        file.unlink()
        return mode, kept, shown

    for acl in (None, "u:7:rwx", "u:7:rwx,m::rw"):
        for mode in (0o6777, 0o6767, 0o2755, 0o4711):
            for deed in (
                ["sh", "-c", "echo y >> program"],
                [*AS_NOBODY, "sh", "-c", "echo y >> program"],
                [*AS_NOBODY, "sh", "-c", ": > program"],
                ["truncate", "-s", "5", "program"],
                [*AS_NOBODY, "truncate", "-s", "5", "program"],
                ["chown", "7:8", "program"],
                ["chown", ":8", "program"],
                ["chmod", "u+x", "program"],
            ):
                assert outcome(volume, acl, mode, deed) == outcome(local, acl, mode, deed), (acl, oct(mode), deed)


def test_sticky_and_setgid_directories(volume, local):
    for where in (volume, local):
        (where / "tmp").mkdir()
        (where / "tmp").chmod(0o1777)
        (where / "tmp/f").touch()
        assert not as_nobody(where, "rm tmp/f")
        assert as_nobody(where, "touch tmp/own && rm tmp/own")
        (where / "shared").mkdir()
        os.chown(where / "shared", 0, 9)
        (where / "shared").chmod(0o2775)
        run(where, "setfacl", "-d", "-m", "g:8:rwx", "shared")
        (where / "shared/sub").mkdir()
        (where / "shared/f").touch()
        run(where, "setfacl", "-m", f"u:{NOBODY}:rwx", "shared")
        assert as_nobody(where, "umask 0; touch shared/theirs && mkdir shared/dir && install -m 2755 /dev/null shared/i")
    assert acls_of(volume) == acls_of(local)
