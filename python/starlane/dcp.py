"""torch.distributed.checkpoint on a mount.

    dcp.save(state, storage_writer=Writer("/mnt/starlane/volumes/work/step-100"))
    dcp.async_save(state, storage_writer=Writer(…))
    dcp.load(state, storage_reader=Reader("/mnt/starlane/volumes/work/step-100"))

The format is torch's own: `Reader` loads what torch's FileSystemWriter wrote, torch's FileSystemReader what `Writer` wrote.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import pathlib
import shutil
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

READERS = 8
EXCHANGE = 2  # renameat2's flag
AT_FDCWD = -100


class Reader(FileSystemReader):
    """Reads each stored item once, however many parts of it the plan wants, many at once, in the order of the files.

    Ranks of one host that load the same data share them by the node cache and the page cache of the mount: the store sends
    them once a host.

    Args:
        path: the checkpoint's directory.
        readers: items read at once.

    Raises (in `dcp.load`, wrapped in torch's CheckpointException):
        FileNotFoundError: there is no checkpoint, or one of its files is missing.
        EOFError: a file is shorter than the checkpoint says.
        OSError(ESTALE): another checkpoint took its place meanwhile; the state may be of both.
    """

    def __init__(self, path: str | os.PathLike[str], *, readers: int = READERS, **options: Any):
        super().__init__(path, **options)
        self.readers = readers
        self._inode = 0

    def read_metadata(self, *args: Any, **options: Any) -> Metadata:
        self._inode = pathlib.Path(self.path).stat().st_ino
        return super().read_metadata(*args, **options)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        wanted: dict[Any, list[ReadItem]] = defaultdict(list)
        for request in plan.items:
            wanted[request.storage_index].append(request)
        places = sorted(wanted, key=lambda index: (self.storage_data[index].relative_path, self.storage_data[index].offset))
        with ThreadPoolExecutor(self.readers, thread_name_prefix="starlane-dcp") as pool:
            window = self.readers * 2  # so that no more than this is read and not yet handed on
            running = [(index, pool.submit(self._item, index, wanted[index][0])) for index in places[:window]]
            for number, index in enumerate(places):
                _, coming = running[number]
                value = coming.result()
                running[number] = (index, cast(Any, None))
                if number + window < len(places):
                    later = places[number + window]
                    running.append((later, pool.submit(self._item, later, wanted[later][0])))
                for request in wanted[index]:
                    _hand_on(request, value, planner)
        if pathlib.Path(self.path).stat().st_ino != self._inode:
            raise OSError(errno.ESTALE, "another checkpoint took its place while it was read; load it again", str(self.path))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _item(self, index: Any, request: ReadItem) -> Any:
        """A stored item: its tensor, or its bytes."""
        stored = self.storage_data[index]
        with open(pathlib.Path(self.path) / stored.relative_path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size < stored.offset + stored.length:  # torch would not pass on what Part raises
                raise EOFError(f"{file.name} is incomplete: the checkpoint has {stored.offset + stored.length} bytes in it")
            part = Part(file.fileno(), stored.offset, stored.length)
            descriptors = getattr(stored, "transform_descriptors", None) or ()
            stream = self.transforms.transform_load_stream(request, descriptors, cast(Any, part))
            if request.type == LoadItemType.BYTE_IO:
                return stream.read(-1)
            source = stream if stream.seekable() else io.BytesIO(stream.read(-1))
            return torch.load(source, map_location="cpu", weights_only=True)


def _hand_on(request: ReadItem, value: Any, planner: LoadPlanner) -> None:
    if request.type == LoadItemType.BYTE_IO:
        planner.load_bytes(request, io.BytesIO(value))
        return
    piece = narrow_tensor_by_index(value, request.storage_offsets, request.lengths)
    target = planner.resolve_tensor(request).detach()
    if target.size() != piece.size():
        raise ValueError(f"{request.storage_index.fqn} has shape {tuple(piece.size())} in the checkpoint, "
                         f"{tuple(target.size())} in the model")
    target.copy_(piece)
    planner.commit_tensor(request, target)


class Part(io.RawIOBase):
    """Bytes [offset, offset + length) of a file as a file; torch reads a storage straight into its memory by `readinto`.

    Raises:
        EOFError: the file ends before the part does.
    """

    def __init__(self, descriptor: int, offset: int, length: int):
        self._descriptor, self._offset, self._length, self._at = descriptor, offset, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._length - self._at)]
        done = 0
        while done < len(view):
            got = os.preadv(self._descriptor, [view[done:]], self._offset + self._at + done)
            if got == 0:
                raise EOFError(f"the file ends {len(view) - done} bytes before the checkpoint says; it is incomplete")
            done += got
        self._at += done
        return done


class Writer(FileSystemWriter):
    """Writes a checkpoint beside its place and moves it there by one rename, when every rank has written and synced: it is
    seen whole or not at all, on every host, and an earlier one of the name stays until then.

    Takes what torch's FileSystemWriter takes. Without collectives (`use_collectives=False`) nobody knows when all ranks
    are done: then the files are written in place, as torch does.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any):
        super().__init__(path, **{"thread_count": 4, **options})
        self._place = pathlib.Path(self.path)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self.path = self._place
        super().reset(checkpoint_id)
        self._place = pathlib.Path(self.path)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **options: Any) -> None:
        super().set_up_storage_writer(is_coordinator, *args, **options)
        if self.use_collectives:
            if self._place.exists() and not self.overwrite:
                raise FileExistsError(f"{self._place} is there already; choose another name, or say overwrite=True")
            self.path = self._place.with_name(f"{self._place.name}.saving")

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the coordinator, after every rank has planned and before any writes: what an attempt that was cut off left is
        removed."""
        if self.use_collectives:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.path)
            pathlib.Path(self.path).mkdir(parents=True)
        return super().prepare_global_plan(plans)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator, after every rank has written."""
        super().finish(metadata, results)
        if self.use_collectives:
            _sync(pathlib.Path(self.path))
            _move_into_place(pathlib.Path(self.path), self._place)
            _sync(self._place.parent)
            self.path = self._place

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if not self.use_collectives:
            return super().prepare_local_plan(plan)
        return plan

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        return self._place


def _move_into_place(draft: pathlib.Path, place: pathlib.Path) -> None:
    if not place.exists():
        draft.rename(place)
        return
    library = ctypes.CDLL(None, use_errno=True)
    if library.renameat2(AT_FDCWD, os.fsencode(draft), AT_FDCWD, os.fsencode(place), EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(place))
    shutil.rmtree(draft)  # the earlier one now


def _sync(directory: pathlib.Path) -> None:
    with _opened(directory) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def _opened(directory: pathlib.Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
