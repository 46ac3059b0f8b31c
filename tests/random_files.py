#!/usr/bin/env python3
"""Random work on one file, checked against a model of it in memory: reads, writes, maps, truncation, holes, zeros,
allocation, copies inside the file, seeks, closes and opens, through one directory or several that show the same volume
(the file moves between them at a close). Also a program:

    tests/random_files.py --seconds 600 /mnt/a/volumes/work /mnt/b/volumes/work

The seed is printed; the same seed and options give the same operations. What goes wrong is told with the last of them."""

import argparse
import collections
import dataclasses
import mmap
import os
import pathlib
import random
import sys
import time

from local import KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE, fallocate

PAGE = 4096
WINDOW = 320 << 10
# Where the window lies in the file: at its start, over the edge of a block, of a chunk, and far out.
BASES = (0, (4 << 20) - (100 << 10), (64 << 20) - (200 << 10), (5 << 40) + 12_345)


@dataclasses.dataclass
class Options:
    seed: int
    base: int = 0
    maps: bool = True    # with them, which bytes count as data is the kernel's to say: pages
    exact: bool = True   # holes and st_blocks by the byte, as Starlane has them; only without maps
    direct: bool = True  # some opens are O_DIRECT; not all file systems take that at any offset


class Mismatch(AssertionError):
    pass


class Exerciser:
    def __init__(self, directories: list, options: Options):
        self.paths = [pathlib.Path(directory) / f"random-{options.seed}-{options.base}" for directory in directories]
        self.options = options
        self.rng = random.Random(f"{options.seed}/{options.base}")
        self.content = bytearray()  # from the base on
        self.data = bytearray()     # 1 for each byte that was written, 0 in holes
        self.log = collections.deque(maxlen=25)
        self.steps = 0
        self.exact = options.exact and not options.maps
        self.fd = os.open(self.paths[0], os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self.actions = [self.read] * 6 + [self.write] * 8 + [self.truncate, self.punch, self.zero, self.allocate, self.seek,
                        self.seek, self.copy, self.sync, self.stat, self.reopen]
        if options.maps:
            self.actions += [self.map_read, self.map_write, self.map_write]

    def run(self, seconds: float = 0, steps: int = 0) -> None:
        end = time.monotonic() + seconds
        try:
            while (time.monotonic() < end) if seconds else (self.steps < steps):
                self.steps += 1
                self.rng.choice(self.actions)()
            for path in self.paths:  # cold, through each
                self.reopen(path, flags=os.O_RDWR)
                self.check("all", os.pread(self.fd, WINDOW + 10, self.options.base), 0)
                self.stat()
        except Exception as error:
            history = "\n".join(self.log)
            raise Mismatch(f"{self.options}, step {self.steps}: {error}\nlast operations:\n{history}") from error
        finally:
            os.close(self.fd)
        os.unlink(self.paths[0])

    # ---- Operations ----

    def read(self):
        at, length = self.place()
        self.note("read", at, length)
        self.check("read", os.pread(self.fd, length, self.options.base + at), at, length)

    def write(self):
        at, length = self.place()
        data = self.rng.randbytes(length)
        self.note("write", at, length)
        assert os.pwrite(self.fd, data, self.options.base + at) == length
        self.grow(at + length)
        self.content[at : at + length] = data
        self.data[at : at + length] = b"\1" * length

    def truncate(self):
        length = self.rng.randrange(WINDOW)
        self.note("truncate", length)
        os.ftruncate(self.fd, self.options.base + length)
        self.grow(length)
        del self.content[length:], self.data[length:]

    def punch(self):
        at, length = self.place()
        self.note("punch", at, length)
        fallocate(self.fd, PUNCH_HOLE | KEEP_SIZE, self.options.base + at, length)
        self.clear(at, at + length)

    def zero(self):
        at, length = self.place()
        keep = self.rng.randrange(2) * KEEP_SIZE
        self.note("zero", at, length, keep)
        fallocate(self.fd, ZERO_RANGE | keep, self.options.base + at, length)
        if not keep:
            self.grow(at + length)
        self.clear(at, at + length)

    def allocate(self):
        at, length = self.place()
        keep = self.rng.randrange(2) * KEEP_SIZE
        self.note("allocate", at, length, keep)
        fallocate(self.fd, keep, self.options.base + at, length)
        if not keep:
            self.grow(at + length)

    def copy(self):
        at, length = self.place()
        to = self.rng.randrange(WINDOW)
        length = min(length, len(self.content) - at, WINDOW - to, abs(to - at))
        if length <= 0:
            return
        self.note("copy", at, to, length)
        done = 0
        while done < length:
            done += os.copy_file_range(self.fd, self.fd, length - done, self.options.base + at + done,
                                       self.options.base + to + done)
        self.grow(to + length)
        self.content[to : to + length] = self.content[at : at + length]
        self.data[to : to + length] = self.data[at : at + length]

    def map_read(self):
        at, length = self.place()
        with self.mapped(at, length, mmap.PROT_READ) as (area, skip, length):
            self.note("map_read", at, length)
            self.check("map_read", area[skip : skip + length], at, length)

    def map_write(self):
        at, length = self.place()
        with self.mapped(at, length, mmap.PROT_READ | mmap.PROT_WRITE) as (area, skip, length):
            data = self.rng.randbytes(length)
            self.note("map_write", at, length)
            area[skip : skip + length] = data
            self.content[at : at + length] = data
            self.data[at : at + length] = b"\1" * length
            if length and self.rng.randrange(2):
                area.flush()

    def seek(self):
        at = self.rng.randrange(WINDOW)
        whence = self.rng.choice([os.SEEK_DATA, os.SEEK_HOLE])
        self.note("seek", "data" if whence == os.SEEK_DATA else "hole", at)
        try:
            found = os.lseek(self.fd, self.options.base + at, whence) - self.options.base
        except OSError:
            found = None
        self.check_seek(at, whence == os.SEEK_DATA, found)

    def sync(self):
        self.note("sync")
        os.fsync(self.fd)
        self.stat()

    def stat(self):
        status = os.fstat(self.fd)
        expected = self.options.base + len(self.content) if self.content or self.options.base == 0 else None
        if expected is not None and status.st_size != expected:
            raise Mismatch(f"length {status.st_size}, not {expected}")

    def reopen(self, path=None, flags=None):
        path = path or self.rng.choice(self.paths)
        if flags is None:
            flags = os.O_RDWR | (os.O_DIRECT if self.options.direct and self.rng.randrange(5) == 0 else 0)
        self.note("reopen", path, flags)
        os.close(self.fd)
        self.fd = os.open(path, flags)
        status = os.fstat(self.fd)
        if self.exact and status.st_blocks != (sum(self.data) + 511) // 512:
            raise Mismatch(f"{status.st_blocks} blocks are held of {sum(self.data)} bytes of data")

    # ---- The model ----

    def place(self):
        length = self.rng.choice([1, 100, PAGE, 5000, 20_000, self.rng.randrange(1, 100_000)])
        at = self.rng.choice([self.rng.randrange(WINDOW), len(self.content) % WINDOW, self.rng.randrange(WINDOW) & ~(PAGE - 1)])
        return at, min(length, WINDOW - at)

    def grow(self, length):
        if length > len(self.content):
            self.content.extend(bytes(length - len(self.content)))
            self.data.extend(bytes(length - len(self.data)))

    def clear(self, begin, end):
        end = min(end, len(self.content))
        if begin < end:
            self.content[begin:end] = bytes(end - begin)
            self.data[begin:end] = bytes(end - begin)

    def mapped(self, at, length, protection):
        return Mapped(self, at, max(0, min(length, len(self.content) - at)), protection)

    def note(self, *what):
        self.log.append(f"  {self.steps}: " + " ".join(map(str, what)))

    # ---- Checks ----

    def check(self, what, found, at, length=None):
        expected = bytes(self.content[at : at + length]) if length is not None else bytes(self.content)
        if found == expected:
            return
        if len(found) != len(expected):
            raise Mismatch(f"{what} at {at}: {len(found)} bytes, not {len(expected)}")
        first = next(i for i in range(len(found)) if found[i] != expected[i])
        raise Mismatch(f"{what} at {at}: differs from byte {at + first} on: {found[first]}, not {expected[first]}")

    def check_seek(self, at, for_data, found):
        length = len(self.content)
        if length <= at:
            if found is not None:
                raise Mismatch(f"a seek beyond the end ({length}) finds {found}")
            return
        if self.exact:
            expected = self.data.find(1 if for_data else 0, at)
            expected = (None if for_data else length) if expected < 0 else expected
            if found != expected:
                raise Mismatch(f"seek finds {found}, not {expected}")
            return
        skipped = self.content[at : length if found is None else found]
        if for_data and any(skipped):
            raise Mismatch(f"a seek for data passes over some: from {at} to {found}")
        if not for_data and (found is None or not at <= found <= length or (found < length and self.content[found])):
            raise Mismatch(f"a seek for a hole finds {found}")


class Mapped:
    """A shared map of a part of the file: (memory, where the part begins in it, its length)."""

    def __init__(self, one: Exerciser, at: int, length: int, protection: int):
        start = (one.options.base + at) & ~(PAGE - 1)
        self.skip, self.length, self.area = one.options.base + at - start, length, bytearray()
        if length:
            self.area = mmap.mmap(one.fd, self.skip + length, mmap.MAP_SHARED, protection, offset=start)

    def __enter__(self):
        return self.area, self.skip, self.length

    def __exit__(self, *_):
        if self.length:
            self.area.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="+", help="of one volume, through one mount or several")
    parser.add_argument("--seconds", type=float, default=20, help="how long in all")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--no-maps", dest="maps", action="store_false", help="no shared maps; then holes are checked by the byte")
    parser.add_argument("--other", action="store_true", help="not Starlane: neither holes by the byte nor O_DIRECT")
    given = parser.parse_args()
    print("seed", given.seed, flush=True)
    steps = 0
    for base in BASES:
        one = Exerciser(given.directory, Options(given.seed, base, given.maps, not given.other, not given.other))
        one.run(seconds=given.seconds / len(BASES))
        steps += one.steps
    print(steps, "operations, all as in the model")


if __name__ == "__main__":
    sys.exit(main())
