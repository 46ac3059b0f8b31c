"""A writer that knows what must be there after a power cut: it works in a directory of its own, one call after the
other, and keeps outside of the file system what was acknowledged and what was only asked for."""

import errno
import hashlib
import os
import pathlib
import random
import struct
import threading

CELL = 4096
MAX_CELLS = 1024
HEADER = struct.Struct("<4sIIQ")
MAGIC = b"cell"


def cell_bytes(serial: int, index: int, generation: int) -> bytes:
    """The one content of a cell and generation; generation 0 is a hole."""
    if generation == 0:
        return bytes(CELL)
    head = HEADER.pack(MAGIC, serial, index, generation)
    return head + hashlib.shake_128(head).digest(CELL - len(head))


def small_bytes(serial: int, length: int) -> bytes:
    return hashlib.shake_128(b"small %d" % serial).digest(length)


class File:
    """What a file holds, what of it was synced, and what may have taken its place since."""

    def __init__(self, serial: int, small: int = 0):
        self.serial, self.small = serial, small  # small: written once, so many bytes; else in cells
        self.inode = None  # not known before the creation was answered
        self.now = {}  # cell -> generation
        self.length = 0
        self.synced = {}
        self.since = {}  # cell -> generations that were asked for after the last sync
        self.lengths = {0}

    def write(self, first: int, count: int, generation: int) -> None:
        for cell in range(first, first + count):
            self.now[cell] = generation
            self.since.setdefault(cell, set()).add(generation)
        self.length = max(self.length, first + count)
        self.lengths.add(self.length)

    def truncate(self, cells: int) -> None:
        for cell in [c for c in self.now if c >= cells]:
            del self.now[cell]
            self.since.setdefault(cell, set()).add(0)
        self.length = cells
        self.lengths.add(cells)

    def sync(self) -> None:
        self.synced, self.since, self.lengths = dict(self.now), {}, {self.length}

    def allowed(self, cell: int) -> set:
        return {self.synced.get(cell, 0)} | self.since.get(cell, set())

    def found(self, generations: dict, length: int) -> None:
        """After a cut: what was seen is what there is."""
        self.now, self.length = generations, length
        self.sync()


class Writer(threading.Thread):
    def __init__(self, directory: pathlib.Path, number: int, seed: int, names: dict | None = None):
        super().__init__(name=f"writer-{number}")
        self.directory, self.number = directory, number
        self.random = random.Random(seed)
        self.states = [dict(names or {})]  # name -> File, as synced; then after each call since
        self.stop = threading.Event()
        self.dark = threading.Event()  # set before the power is cut
        self.calls = self.syncs = self.lost = 0
        self.failure = None
        self.in_call = ""

    # ---- at work ----

    def run(self) -> None:
        actions = [self.create] * 3 + [self.create_small] * 4 + [self.write] * 6 + [self.replace] * 3
        actions += [self.rename] * 2 + [self.unlink] * 2 + [self.truncate] + [self.sync_directory] * 2
        while not self.stop.is_set():
            action = self.random.choice(actions)
            self.in_call = action.__name__
            try:
                action()
                self.calls += 1
            except OSError as error:
                self.failure = error
                return

    @property
    def names(self) -> dict:
        return self.states[-1]

    def path(self, name: str) -> pathlib.Path:
        return self.directory / name

    def asked(self, **changes) -> None:
        """The names as they are if the call that follows happens; None: gone."""
        state = {**self.names, **changes}
        self.states.append({name: file for name, file in state.items() if file is not None})

    def all_names_synced(self) -> None:
        self.states = self.states[-1:]
        self.syncs += 1

    def new_name(self) -> str:
        return f"n{self.random.randrange(1 << 40):x}"

    def pick(self, cells: bool = False) -> str | None:
        names = sorted(name for name, file in self.names.items() if not (cells and file.small))
        return self.random.choice(names) if names else None

    def fsync(self, fd: int) -> None:
        os.fsync(fd)
        # An answer that comes once the power goes reaches nobody. It may also be wrong: an fsync that ext4's shutdown
        # meets half-way returns 0 although the journal took no more.
        if self.dark.is_set():
            raise OSError(errno.EIO, "the power is going")

    def sync(self, fd: int, file: File) -> None:
        self.fsync(fd)
        file.sync()
        self.all_names_synced()  # names are in one log with everything else

    def sync_directory(self) -> None:
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.fsync(fd)
            self.all_names_synced()
        finally:
            os.close(fd)

    def make(self, name: str, file: File) -> int:
        self.asked(**{name: file})
        fd = os.open(self.path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        file.inode = os.fstat(fd).st_ino
        return fd

    def create(self) -> None:
        if len(self.names) > 24:
            return self.unlink()
        file = File(self.random.getrandbits(32))
        fd = self.make(self.new_name(), file)
        self.fill(fd, file)

    def create_small(self) -> None:
        if len(self.names) > 24:
            return self.unlink()
        self.small_file(self.new_name())

    def small_file(self, name: str, sync: bool | None = None) -> None:
        file = File(self.random.getrandbits(32), small=self.random.choice([1, 100, 3000, 4096, 5000, 70_000]))
        fd = self.make(name, file)
        try:
            os.write(fd, small_bytes(file.serial, file.small))
            if self.random.random() < 0.5 if sync is None else sync:
                self.sync(fd, file)
                file.synced = {0: 1}
        finally:
            os.close(fd)

    def write(self) -> None:
        name = self.pick(cells=True)
        if name is None:
            return self.create()
        file = self.names[name]
        self.fill(os.open(self.path(name), os.O_RDWR), file)

    def fill(self, fd: int, file: File) -> None:
        """Some writes, perhaps synced in between; always closed."""
        try:
            for _ in range(self.random.randrange(1, 5)):
                count = min(self.random.choice([1, 1, 3, 40, 300, 700]), MAX_CELLS)
                first = self.random.randrange(MAX_CELLS - count + 1) if self.random.random() < 0.5 else 0
                generation = self.random.randrange(1, 1 << 60)
                file.write(first, count, generation)
                data = b"".join(cell_bytes(file.serial, c, generation) for c in range(first, first + count))
                assert os.pwrite(fd, data, first * CELL) == len(data)
                if self.random.random() < 0.3:
                    self.sync(fd, file)
        finally:
            os.close(fd)

    def replace(self) -> None:
        """As editors and checkpointers do: a new file, synced, renamed over the old one, the directory synced."""
        name = self.pick() or self.new_name()
        draft = self.new_name()
        self.small_file(draft, sync=True)
        self.asked(**{name: self.names[draft], draft: None})
        os.rename(self.path(draft), self.path(name))
        if self.random.random() < 0.7:
            self.sync_directory()

    def rename(self) -> None:
        name = self.pick()
        if name is None:
            return
        target = self.pick() if self.random.random() < 0.4 else self.new_name()
        if target == name:
            return
        self.asked(**{target: self.names[name], name: None})
        os.rename(self.path(name), self.path(target))

    def unlink(self) -> None:
        name = self.pick()
        if name is None:
            return
        self.asked(**{name: None})
        os.unlink(self.path(name))

    def truncate(self) -> None:
        name = self.pick(cells=True)
        if name is None:
            return
        file = self.names[name]
        cells = self.random.randrange(MAX_CELLS)
        file.truncate(cells)
        os.truncate(self.path(name), cells * CELL)

    # ---- afterwards ----

    def check(self) -> dict:
        """Compares what is there with what may be; the names and files for the next round."""
        self.dark.clear()
        with os.scandir(self.directory) as entries:
            found = {entry.name: entry.stat().st_ino for entry in entries}
        fitting = [state for state in self.states if self.fits(state, found)]
        assert fitting, self.misfit(found)
        state = fitting[-1]
        for name, file in list(state.items()):
            file.inode = found[name]
            if not (self.check_small if file.small else self.check_cells)(name, file):
                self.lost += 1  # what was never synced may read as an error, and can be removed
                os.unlink(self.path(name))
                del state[name]
        self.sync_directory()
        return state

    def read_cells(self, name: str) -> list:
        """The file's cells; None where reading is an error."""
        pieces = []
        with open(self.path(name), "rb", buffering=0) as file:
            for at in range(0, os.fstat(file.fileno()).st_size, CELL):
                try:
                    pieces.append(os.pread(file.fileno(), CELL, at))
                except OSError as error:
                    assert error.errno == errno.EIO, f"{name}: {error}"
                    pieces.append(None)
        return pieces

    @staticmethod
    def fits(state: dict, found: dict) -> bool:
        return state.keys() == found.keys() and all(
            file.inode in (None, found[name]) for name, file in state.items())

    def misfit(self, found: dict) -> str:
        synced = self.states[0]
        return (f"{self.name}: names are those after none of the {len(self.states) - 1} calls since the last sync; "
                f"missing {sorted(synced.keys() - found.keys())}, more {sorted(found.keys() - synced.keys())}")

    def check_small(self, name: str, file: File) -> bool:
        pieces = self.read_cells(name)
        if None in pieces:
            assert not file.synced, f"{name}: was synced, and reads as an error"
            return False
        data = b"".join(pieces)
        whole = small_bytes(file.serial, file.small)
        if file.synced:
            assert data == whole, f"{name}: {len(data)} of {file.small} synced bytes, or others"
        else:
            assert data in (b"", whole), f"{name}: {len(data)} of {file.small} bytes, torn"
        if not data:
            file.small, file.synced, file.lengths = 0, {}, {0}  # from now on a file of cells
        else:
            file.synced = {0: 1}
        return True

    def check_cells(self, name: str, file: File) -> bool:
        pieces = self.read_cells(name)
        cells = len(pieces)
        assert min(file.lengths) <= cells <= max(file.lengths), \
            f"{name}: {cells} cells, not one of {sorted(file.lengths)}"
        generations = {}
        for cell, piece in enumerate(pieces):
            if piece is None:
                assert file.since.get(cell), f"{name}: cell {cell} was synced, and reads as an error"
                continue
            assert len(piece) == CELL, f"{name}: cell {cell} has {len(piece)} bytes"
            generation = HEADER.unpack_from(piece)[3] if piece.startswith(MAGIC) else 0
            assert piece == cell_bytes(file.serial, cell, generation), f"{name}: cell {cell} is torn"
            assert generation in file.allowed(cell), \
                f"{name}: cell {cell} has generation {generation}, not one of {file.allowed(cell)}"
            if generation:
                generations[cell] = generation
        file.found(generations, cells)
        return None not in pieces


def gone(error: OSError | None) -> bool:
    """What a caller may see while everything is being killed."""
    return error is None or error.errno in (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ENOSPC,
                                              errno.EROFS)
