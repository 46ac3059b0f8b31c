"""fastsafetensors on a mount: a copier of the name "starlane", and a loader that uses it.

    from starlane.fastsafetensors import Loader

    loader = Loader(process_group, "cuda:0")
    loader.add_filenames({0: ["/mnt/starlane/public/llama/v3/model-00001.safetensors"]})
    tensors = loader.copy_files_to_device()

Needs fastsafetensors 0.5 or later. fastsafetensors' configuration file cannot choose it: its list of loaders is closed."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import torch
from fastsafetensors import cpp
from fastsafetensors.common import SafeTensorsMetadata, resolve_runtime_lib_name
from fastsafetensors.copier import register_copier_constructor
from fastsafetensors.copier.base import CopierInterface
from fastsafetensors.loader import BaseSafeTensorsFileLoader
from fastsafetensors.st_types import Device, DeviceType, DType

from starlane.torch._device import DevicePlace
from starlane.torch._source import open_source
from starlane.torch._transfer import THREADS, Transfer, cut

COPIER = "starlane"


@dataclasses.dataclass(frozen=True)
class _Memory:
    """What somebody else allocated, as DevicePlace asks of it."""

    address: int
    length: int

    def data_ptr(self) -> int:
        return self.address

    def numel(self) -> int:
        return self.length


class Reader:
    """Has the one method that fastsafetensors' "3fs" copier asks of a reader, so that it may be given there too."""

    def __init__(self, device: Any = "cpu", threads: int = THREADS):
        """device: whose memory is read into: a torch.device, its name, or a starlane.devices.Fake."""
        self._device = torch.device(device) if isinstance(device, str) else device
        self._threads = threads

    def read_chunked(self, path: str, dev_ptr: int, file_offset: int, total_length: int, chunk_size: int = 0) -> int:
        """Bytes [file_offset, file_offset + total_length) of a file to memory at dev_ptr; answers total_length.

        chunk_size is of no matter: chunks are ours. Errors: OSError; FormatError: the file ends before; DeviceError."""
        with contextlib.closing(open_source(path)) as source:
            if isinstance(self._device, torch.device) and self._device.type == "cpu":
                with Transfer(cut(source, file_offset, dev_ptr, total_length), self._threads) as transfer:
                    transfer.wait()
                return total_length
            place = DevicePlace(self._device)
            memory: Any = _Memory(dev_ptr, total_length)
            with place.transfer(source, [(file_offset, memory)], self._threads) as transfer:
                transfer.wait()
                place.synchronize()
            return total_length


class Copier(CopierInterface):  # type: ignore[misc, unused-ignore]
    """The body of one file to one piece of memory; tensors are views of it, as with every copier of fastsafetensors."""

    def __init__(self, metadata: SafeTensorsMetadata, device: Device, framework: Any, reader: Reader):
        self.metadata, self._device, self._framework, self._reader = metadata, device, framework, reader

    def submit_io(self, use_buf_register: bool, max_copy_block_size: int) -> Any:
        length = self.metadata.size_bytes - self.metadata.header_length
        memory = self._framework.alloc_tensor_memory(length, self._device)
        self._reader.read_chunked(self.metadata.src, memory.get_base_address(), self.metadata.header_length, length)
        return memory

    def wait_io(self, gbuf: Any, dtype: DType = DType.AUTO, noalign: bool = False, owner: Any = None) -> Any:
        return self.metadata.get_tensors(gbuf, self._device, self.metadata.header_length, dtype=dtype, owner=owner)


@register_copier_constructor(COPIER, Copier)  # type: ignore[untyped-decorator, unused-ignore]
def _constructor(device: Device, threads: int = THREADS, **_: Any) -> Any:
    reader = Reader("cpu" if device.type == DeviceType.CPU else device.as_str(), threads)
    return lambda metadata, device, framework: Copier(metadata, device, framework, reader)


class Loader(BaseSafeTensorsFileLoader):  # type: ignore[misc, unused-ignore]
    """As fastsafetensors.SafeTensorsFileLoader: `add_filenames`, `copy_files_to_device`, `close`.

    pg: a torch.distributed group, fastsafetensors.SingleGroup(), or None. device: "cpu", "cuda:0"."""

    def __init__(self, pg: Any, device: str = "cpu", *, framework: str = "pytorch", **options: Any):
        cpp.load_library_functions(resolve_runtime_lib_name())
        super().__init__(pg, Device.from_str(device), COPIER, framework=framework, **options)
