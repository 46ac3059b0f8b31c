"""Blocks are read back: at once when asked for, and damage on the device is found and told."""

import os

from conftest import wait_until

MIB = 1 << 20


def damage(site) -> None:
    """Flips a byte in the middle of the largest segment, past the store."""
    segments = sorted((site.dir).rglob("segment.*"), key=lambda path: path.stat().st_size)
    with open(segments[-1], "r+b") as segment:
        at = segments[-1].stat().st_size // 2
        segment.seek(at)
        byte = segment.read(1)[0]
        segment.seek(at)
        segment.write(bytes([byte ^ 0xFF]))
        os.fsync(segment.fileno())


def test_scrub_reads_everything_back_and_finds_damage(site):
    volume = site.volume()
    (volume / "f").write_bytes(os.urandom(24 * MIB))
    os.sync()
    done = site.json("scrub", "--wait")
    assert done == {"blocks": 6, "bytes": 24 * MIB, "damaged": 0}
    scrub = site.json("status")["targets"][0]["scrub"]
    assert scrub["bytes"] == 24 * MIB and scrub["finished"] > 0 and not scrub["under_way"] and not scrub["wanted"]
    damage(site)
    told = site.run("--json", "scrub", "--wait", check=False)
    assert told.returncode == 1 and '"damaged":1' in told.stdout and "fsck --verify" in told.stderr
    assert site.json("status")["targets"][0]["scrub"]["damaged"] == 1
    figures = wait_until(lambda: (f := site.json("status")["roles"]["keeper"]["figures"])["damaged_blocks"] and f)
    assert figures["damaged_blocks"] == 1 and figures["scrubbed_bytes"] >= 48 * MIB
    assert "1 damaged" in site.run("status").stdout


def test_scrub_goes_on_after_its_keeper_was_killed(make_site):
    site = make_site(separate=True, options=("--scrub-rate", "4MiB"))
    site.up()
    volume = site.volume()
    (volume / "f").write_bytes(os.urandom(64 * MIB))
    os.sync()
    state = lambda: site.json("status")["targets"][0].get("scrub", {})
    wait_until(lambda: state().get("finished", 0) > 0 or state().get("under_way"))
    site.run("scrub")
    site.kill("keeper")
    assert site.json("scrub", "--wait") == {"blocks": 16, "bytes": 64 * MIB, "damaged": 0}
