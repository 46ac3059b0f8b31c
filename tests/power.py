"""A disk whose power can be cut: a real file system on a loop device, shut down without writing anything back."""

import fcntl
import os
import pathlib
import struct
import subprocess

from conftest import wait_until

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN
WITHOUT_LOG = 2  # neither data nor the journal's memory reaches the device


class PowerDisk:
    """A mounted file system of its own in `directory`; what is on it survives a cut as far as it was synced."""

    def __init__(self, directory: pathlib.Path, megabytes: int = 4096):
        self.image, self.path = directory / "disk.img", directory / "disk"
        self.path.mkdir()
        with open(self.image, "wb") as image:
            image.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True)
        self.restore()

    def cut(self) -> None:
        """From now on every access fails, and what was not synced is lost."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(fd)

    def unplug(self) -> None:
        """Once nobody has it open; processes that were killed take a moment."""
        wait_until(lambda: subprocess.run(["umount", str(self.path)], capture_output=True).returncode == 0)

    def restore(self) -> None:
        subprocess.run(["mount", "-o", "loop,noatime", str(self.image), str(self.path)], check=True)

    def remove(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True)


def available() -> str:
    """Empty, or why there can be no such disk here."""
    if os.geteuid() != 0:
        return "a loop device needs root"
    if not os.path.exists("/dev/loop-control"):
        return "no loop devices here"
    try:
        subprocess.run(["mkfs.ext4", "-V"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "mkfs.ext4 is missing (package e2fsprogs)"
    return ""
