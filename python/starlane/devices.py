"""Devices that tensors are loaded to, behind one table of calls: the host, CUDA and HIP (their driver libraries by dlopen, so
that nothing is linked), and a fake whose device memory the application's CPU cannot touch, which proves that no loader of
ours copies through it. A missing library or device is "no GPU", never an error."""

from __future__ import annotations

import collections.abc
import ctypes as c
import ctypes.util
import dataclasses
import mmap
import os
import queue
import threading
import weakref
from typing import Any, Protocol

PIN_CHUNK = 8 << 20  # bytes of one pinned staging buffer; each reading thread has two


class DeviceError(RuntimeError):
    """A call of the device's driver failed; the text has its name and code."""


class DeviceOps(Protocol):
    """A stream of copies. Addresses are numbers; lengths bytes. One object is used by one thread at a time, but for
    `pinned` and `unpin`."""

    name: str

    def pinned(self, length: int) -> int:
        """Host memory that the device copies from directly; its address."""

    def unpin(self, address: int) -> None: ...

    def copy_in(self, device_address: int, host_address: int, length: int) -> None:
        """Begins a copy from pinned memory to the device."""

    def copy_out(self, host_address: int, device_address: int, length: int) -> None:
        """Begins a copy from the device to pinned memory."""

    def record(self) -> Any:
        """A mark behind everything begun so far."""

    def wait(self, mark: Any) -> None:
        """Until everything before the mark is done; DeviceError: some of it failed."""

    def synchronize(self) -> None: ...

    def close(self) -> None: ...


class HostOps:
    """No device at all: copies are memmove, done when they return."""

    name = "host"

    def __init__(self) -> None:
        self._kept: dict[int, mmap.mmap] = {}
        self._lock = threading.Lock()

    def pinned(self, length: int) -> int:
        memory = mmap.mmap(-1, max(length, 1))
        address = c.addressof(c.c_char.from_buffer(memory))
        with self._lock:
            self._kept[address] = memory
        return address

    def unpin(self, address: int) -> None:
        with self._lock:
            self._kept.pop(address, None)

    def copy_in(self, device_address: int, host_address: int, length: int) -> None:
        c.memmove(device_address, host_address, length)

    def copy_out(self, host_address: int, device_address: int, length: int) -> None:
        c.memmove(host_address, device_address, length)

    def record(self) -> None:
        return None

    def wait(self, mark: Any) -> None: ...

    def synchronize(self) -> None: ...

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class _Driver:
    """Names of one vendor's driver calls with the same arguments, by what they do."""

    name: str
    libraries: tuple[str, ...]
    none_codes: frozenset[int]  # "no device" of init and count
    init: str
    count: str
    set_device: str
    host_alloc: str
    host_free: str
    stream_create: str
    stream_destroy: str
    stream_synchronize: str
    event_create: str
    event_record: str
    event_synchronize: str
    event_destroy: str
    copy_in: str
    copy_out: str


# 34: a stub library; 35: a driver older than the runtime; 100: no device; 999: unknown, of a driver without its device nodes.
_CUDA = _Driver("cuda", ("libcuda.so.1",), frozenset({34, 35, 100, 999}), "cuInit", "cuDeviceGetCount", "", "cuMemHostAlloc",
                "cuMemFreeHost", "cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuEventCreate", "cuEventRecord",
                "cuEventSynchronize", "cuEventDestroy_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2")
_HIP = _Driver("hip", ("libamdhip64.so.6", "libamdhip64.so"), frozenset({3, 35, 100, 101}), "hipInit", "hipGetDeviceCount",
               "hipSetDevice", "hipHostMalloc", "hipHostFree", "hipStreamCreateWithFlags", "hipStreamDestroy",
               "hipStreamSynchronize", "hipEventCreateWithFlags", "hipEventRecord",
               "hipEventSynchronize", "hipEventDestroy", "hipMemcpyHtoDAsync", "hipMemcpyDtoHAsync")
_NON_BLOCKING, _NO_TIMING = 1, 2  # a stream that does not wait for the default one; events without clocks


def _loaded_copy(name: str) -> str:
    """The file of the library that the process has mapped already (torch's), so that there are not two runtimes."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.rsplit(" ", 1)[-1].strip()
                if os.path.basename(path).startswith(name.split(".so")[0] + ".so"):
                    return path
    except OSError:
        pass
    return name


class _Library:
    """A vendor's driver, initialised, with at least one device."""

    def __init__(self, driver: _Driver, library: c.CDLL, count: int):
        self.driver, self.count, self._library = driver, count, library

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise DeviceError(f"{name} of {self.driver.name} answered {code}")


def _open(driver: _Driver) -> _Library | str:
    """The library, or why there is no such GPU."""
    for name in driver.libraries:
        try:
            library = c.CDLL(_loaded_copy(name))
        except OSError:
            continue
        for step, arguments in ((driver.init, (c.c_uint(0),)), (driver.count, None)):
            count = c.c_int(0)
            try:
                code = getattr(library, step)(*(arguments if arguments is not None else (c.byref(count),)))
            except AttributeError:
                return f"{name} has no {step}"
            if code in driver.none_codes:
                return f"{step} of {name} answered {code}: no device"
            if code != 0:
                raise DeviceError(f"{step} of {name} answered {code}")
        return _Library(driver, library, count.value) if count.value > 0 else f"{name} counts no devices"
    return f"{driver.libraries[0]} is not on this machine"


class GpuOps:
    """CUDA or HIP through the driver: a stream of its own on one device. torch owns the context and the device memory; only
    the device that was asked for is ever touched."""

    def __init__(self, library: _Library, index: int):
        if not 0 <= index < library.count:
            raise DeviceError(f"there is no {library.driver.name}:{index}: the machine has {library.count}")
        self.name = f"{library.driver.name}:{index}"
        self._library, self._driver, self._index = library, library.driver, index
        self._enter()
        self._stream = c.c_void_p()
        library.call(self._driver.stream_create, c.byref(self._stream), c.c_uint(_NON_BLOCKING))

    def _enter(self) -> None:
        """Makes the device the calling thread's."""
        if self._driver.set_device:
            self._library.call(self._driver.set_device, c.c_int(self._index))
            return
        device, context = c.c_int(), c.c_void_p()
        self._library.call("cuDeviceGet", c.byref(device), c.c_int(self._index))
        self._library.call("cuDevicePrimaryCtxRetain", c.byref(context), device)  # the one that torch uses
        self._library.call("cuCtxSetCurrent", context)

    def pinned(self, length: int) -> int:
        self._enter()
        address = c.c_void_p()
        self._library.call(self._driver.host_alloc, c.byref(address), c.c_size_t(length), c.c_uint(0))
        return int(address.value or 0)

    def unpin(self, address: int) -> None:
        self._enter()
        self._library.call(self._driver.host_free, c.c_void_p(address))

    def copy_in(self, device_address: int, host_address: int, length: int) -> None:
        self._library.call(self._driver.copy_in, c.c_void_p(device_address), c.c_void_p(host_address), c.c_size_t(length),
                           self._stream)

    def copy_out(self, host_address: int, device_address: int, length: int) -> None:
        self._library.call(self._driver.copy_out, c.c_void_p(host_address), c.c_void_p(device_address), c.c_size_t(length),
                           self._stream)

    def record(self) -> c.c_void_p:
        event = c.c_void_p()
        self._library.call(self._driver.event_create, c.byref(event), c.c_uint(_NO_TIMING))
        self._library.call(self._driver.event_record, event, self._stream)
        return event

    def wait(self, mark: c.c_void_p) -> None:
        self._library.call(self._driver.event_synchronize, mark)
        self._library.call(self._driver.event_destroy, mark)

    def synchronize(self) -> None:
        self._library.call(self._driver.stream_synchronize, self._stream)

    def close(self) -> None:
        self._enter()
        self._library.call(self._driver.stream_destroy, self._stream)


class Fake:
    """A device without a device, for tests and for nothing else: its memory is mapped without any right in this process, so
    that a CPU that touches it faults; copies are made by an engine thread through the memory's descriptor. `fail_after`:
    copies that succeed before one fails; `capacity`: bytes that it has."""

    def __init__(self, *, capacity: int = 1 << 40, fail_after: int = -1):
        self._fd = os.memfd_create("starlane-fake-device")
        self._lock = threading.Lock()
        self._used, self._capacity = 0, capacity
        self._maps: dict[int, tuple[int, int, mmap.mmap]] = {}  # address: offset in the descriptor, length
        self.copied_bytes = 0
        self.fail_after = fail_after
        self.freed_bytes = 0

    def alloc(self, length: int) -> int:
        """DeviceError: out of device memory."""
        room = max(4096, (length + 4095) // 4096 * 4096)
        with self._lock:
            if self._used + room > self._capacity:
                raise DeviceError(f"out of memory of the fake device: {length} bytes are wanted")
            offset, self._used = self._used, self._used + room
            os.ftruncate(self._fd, self._used)
        libc = c.CDLL(None, use_errno=True)
        libc.mmap.restype = c.c_void_p
        libc.mmap.argtypes = [c.c_void_p, c.c_size_t, c.c_int, c.c_int, c.c_int, c.c_long]
        address = libc.mmap(None, room, 0, mmap.MAP_SHARED, self._fd, offset)
        if address in (None, c.c_void_p(-1).value):
            raise DeviceError("the fake device's memory cannot be mapped")
        with self._lock:
            self._maps[address] = (offset, room, None)  # type: ignore[assignment]
        return int(address)

    def owner(self, address: int, length: int) -> Any:
        """A buffer at the address that frees it when nobody needs it any more."""
        array = (c.c_char * length).from_address(address)
        weakref.finalize(array, self._free, address)
        return array

    def _free(self, address: int) -> None:
        with self._lock:
            _, room, _ = self._maps.pop(address)
            self.freed_bytes += room
        c.CDLL(None).munmap(c.c_void_p(address), c.c_size_t(room))

    def offset_of(self, address: int, length: int) -> int:
        """DeviceError: not memory of this device."""
        with self._lock:
            for start, (offset, room, _) in self._maps.items():
                if start <= address and address + length <= start + room:
                    return offset + address - start
        raise DeviceError("the address is not of this device")

    def read(self, address: int, length: int) -> bytes:
        """What lies there, through the descriptor: for checks."""
        return os.pread(self._fd, length, self.offset_of(address, length))

    def copy_in(self, device_address: int, host_address: int, length: int) -> None:
        self._count(length)
        view = memoryview((c.c_char * length).from_address(host_address)).cast("B")
        os.pwrite(self._fd, view, self.offset_of(device_address, length))

    def copy_out(self, host_address: int, device_address: int, length: int) -> None:
        self._count(length)
        view = memoryview((c.c_char * length).from_address(host_address)).cast("B")
        os.preadv(self._fd, [view], self.offset_of(device_address, length))

    def _count(self, length: int) -> None:
        with self._lock:
            if self.fail_after == 0:
                raise DeviceError("the fake device fails as it was told")
            self.fail_after -= 1 if self.fail_after > 0 else 0
            self.copied_bytes += length


class FakeOps(HostOps):
    """The engine of a Fake: one thread, copies in order and later than they were asked for."""

    def __init__(self, device: Fake):
        super().__init__()
        self.name = "fake"
        self._device = device
        self._queue: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._failure: DeviceError | None = None
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            kind, what = self._queue.get()
            if kind == "end":
                return
            if kind == "mark":
                what.set()
                continue
            try:
                getattr(self._device, kind)(*what)
            except DeviceError as failure:
                self._failure = self._failure or failure

    def copy_in(self, device_address: int, host_address: int, length: int) -> None:
        self._queue.put(("copy_in", (device_address, host_address, length)))

    def copy_out(self, host_address: int, device_address: int, length: int) -> None:
        self._queue.put(("copy_out", (host_address, device_address, length)))

    def record(self) -> Any:
        mark = threading.Event()
        self._queue.put(("mark", mark))
        return mark

    def wait(self, mark: Any) -> None:
        mark.wait()
        if self._failure:
            raise self._failure

    def synchronize(self) -> None:
        self.wait(self.record())

    def close(self) -> None:
        self._queue.put(("end", None))
        self._thread.join()


_libraries: dict[str, _Library | str] = {}
_libraries_lock = threading.Lock()


def _library_of(driver: _Driver) -> _Library | str:
    with _libraries_lock:
        if driver.name not in _libraries:
            _libraries[driver.name] = _open(driver)
        return _libraries[driver.name]


def gpus() -> collections.abc.Mapping[str, int | str]:
    """Per vendor: how many devices, or why none."""
    found = {driver.name: _library_of(driver) for driver in (_CUDA, _HIP)}
    return {name: one.count if isinstance(one, _Library) else one for name, one in found.items()}


def gpu_ops(index: int, *, hip: bool = False) -> GpuOps:
    """DeviceError: there is no such device."""
    found = _library_of(_HIP if hip else _CUDA)
    if isinstance(found, str):
        raise DeviceError(f"no GPU: {found}")
    return GpuOps(found, index)
