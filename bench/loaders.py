"""Checkpoints, the ways to load one, and how a way is timed: each process that loads is a child of its own, which shares nothing
with others but what it was given before it was forked, and compares every bit with what was saved once its clock has stopped."""

from __future__ import annotations

import collections.abc
import dataclasses
import importlib.util
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import resource
import sys
import tempfile
import time
import typing
import warnings

import report
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from memory import MemoryAtHand
from sites import ROOT

sys.path.insert(0, str(ROOT / "python"))

import starlane.dcp  # noqa: E402
import starlane.torch as st  # noqa: E402
from starlane import client  # noqa: E402

State = dict[str, torch.Tensor]
INDEX = "model.safetensors.index.json"
SHARDS = 4
_LAYERS = 24
warnings.filterwarnings("ignore", module="torch.*")  # dcp without a process group says so each time
torch.set_num_threads(1)  # OpenMP's barriers spin, the site runs on the same cores, and a forked child has none of its threads

# ---- Checkpoints ----


def state_of(size: int, tensors: int = 0) -> State:
    """About `size` bytes of bfloat16 noise, with the shapes of a transformer, or as that many small tensors."""
    if tensors:
        shapes = {f"expert_{number}": (max(1, size // tensors // 128), 64) for number in range(tensors)}
    else:
        width = max(64, int(math.sqrt(size / (_LAYERS * 12 * 2))) // 64 * 64)
        layer = {"norm_1": (width,), "query_key_value": (3 * width, width), "out": (width, width), "norm_2": (width,),
                 "up": (4 * width, width), "down": (width, 4 * width)}
        shapes = {f"layer_{number}_{name}": shape for number in range(_LAYERS) for name, shape in layer.items()}
    torch.manual_seed(1)
    return {name: torch.randint(-30000, 30000, shape, dtype=torch.int16).view(torch.bfloat16) for name, shape in shapes.items()}


def parameters_like(state: State) -> State:
    """Zeros whose memory is there before a clock starts."""
    return {name: torch.empty_like(tensor).zero_() for name, tensor in state.items()}


def size_of(state: State) -> int:
    return sum(tensor.nbytes for tensor in state.values())


def _write_shards(state: State, folder: pathlib.Path) -> pathlib.Path:
    names, where = list(state), {}
    for number in range(SHARDS):
        part = names[number * len(names) // SHARDS:(number + 1) * len(names) // SHARDS]
        file = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        safetensors.torch.save_file({name: state[name] for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": size_of(state)}, "weight_map": where}))
    return folder / INDEX


def write(kind: str, state: State, folder: pathlib.Path) -> pathlib.Path:
    """By the libraries' own writers; what a loader is to be given. kind: pt, safetensors (one file), shards, dcp."""
    folder.mkdir()
    if kind == "pt":
        torch.save(state, folder / "model.pt")
        return folder / "model.pt"
    if kind == "safetensors":
        safetensors.torch.save_file(state, folder / "model.safetensors")
        return folder / "model.safetensors"
    if kind == "shards":
        return _write_shards(state, folder)
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))
    return folder


# ---- Ways to load them ----


@dataclasses.dataclass(frozen=True)
class Way:
    """load: a path, and the parameters of a model if the way wants them (zeros), to what was loaded. by_site: without the mount."""

    load: collections.abc.Callable[[str, State], State]
    parameters: bool = False
    by_site: bool = False


def _mapped(path: str, parameters: State) -> State:
    model = torch.nn.Module()
    for name, tensor in parameters.items():
        model.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
    model.load_state_dict(torch.load(path, mmap=True))
    return parameters


def _shards(path: str, _: State) -> State:
    if not path.endswith(INDEX):
        return safetensors.torch.load_file(path)
    index = pathlib.Path(path)
    files = dict.fromkeys(json.loads(index.read_text())["weight_map"].values())
    return {name: tensor for file in files for name, tensor in safetensors.torch.load_file(index.parent / file).items()}


def _dcp(reader: collections.abc.Callable[[str], typing.Any]) -> collections.abc.Callable[[str, State], State]:
    def load(path: str, parameters: State) -> State:
        dcp.load(parameters, storage_reader=reader(path))
        return parameters
    return load


def _into(path: str, parameters: State) -> State:
    st.load_into(parameters, path)
    return parameters


def _fastsafetensors(path: str, _: State) -> State:
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: [path]})
    buffers = loader.copy_files_to_device()
    return {name: buffers.get_tensor(name) for name in loader.get_keys()}


def _runai(path: str, _: State) -> State:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path)
        return dict(streamer.get_tensors())


WAYS = {
    "torch.load": Way(lambda path, _: torch.load(path)),
    "torch.load mmap": Way(_mapped, parameters=True),
    "starlane.load": Way(lambda path, _: st.load(path)),
    "safetensors": Way(_shards),
    "starlane.load_file": Way(lambda path, _: st.load_file(path)),
    "starlane.load_file by site": Way(lambda path, _: st.load_file("starlane:///" + path.split("/mnt/")[-1]), by_site=True),
    "starlane.load_into": Way(_into, parameters=True),
    "dcp": Way(_dcp(dcp.FileSystemReader), parameters=True),
    "starlane.dcp": Way(_dcp(starlane.dcp.Reader), parameters=True),
    "fastsafetensors": Way(_fastsafetensors),
    "runai": Way(_runai),
}
_MODULES = {"fastsafetensors": "fastsafetensors", "runai": "runai_model_streamer"}
OTHERS = tuple(name for name, module in _MODULES.items() if importlib.util.find_spec(module))  # that are installed here


# ---- How they are timed ----


@dataclasses.dataclass(frozen=True)
class Taken:
    """took: seconds of the slowest process, from before the first open until each had used every byte. cpu: seconds of all of
    them. peak: bytes of the largest beyond what it had before, mapped files among them. faults: of that with the most.
    size: bytes that each had to load. used: what the place's meter counted meanwhile."""

    size: int
    took: float
    cpu: float
    peak: int
    faults: int
    used: dict[str, float] = dataclasses.field(default_factory=dict)


def _memory_of(what: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def _child(end: multiprocessing.connection.Connection, way: Way, path: str, wanted: State, site: str) -> None:
    """Says that it is ready, waits, loads, uses every byte, says what that took; waits for the others, and compares."""
    parameters = parameters_like(wanted) if way.parameters else {}
    if way.by_site:
        os.environ["STARLANE_DIR"] = site
        client.shared()
    end.send(True)
    end.recv()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    held, before, begin = _memory_of("VmRSS"), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    state = way.load(path, parameters)
    for tensor in state.values():
        tensor.view(-1).view(torch.int64).sum()
    took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    end.send(Taken(size_of(wanted), took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                   _memory_of("VmHWM") - held, after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt))
    end.recv()
    if state.keys() != wanted.keys() or not all(torch.equal(state[name].view(torch.int16), tensor.view(torch.int16))
                                                for name, tensor in wanted.items()):
        sys.exit(f"{path} was not loaded as it was saved: this is a fault, please report it")


def import_for(kind: str, names: collections.abc.Iterable[str]) -> None:
    """Loads something small by each way, so that no child imports anything while its clock runs."""
    tiny = state_of(report.MIB)
    with tempfile.TemporaryDirectory() as folder:
        path = write(kind, tiny, pathlib.Path(folder) / "tiny")
        for way in map(WAYS.get, names):
            if not way.by_site:
                way.load(str(path), parameters_like(tiny))


def _told_by(child: typing.Any, end: multiprocessing.connection.Connection) -> typing.Any:
    multiprocessing.connection.wait([end, child.sentinel])
    if not end.poll():
        sys.exit(f"{child.name} failed; what went wrong stands above")
    return end.recv()


def measure(name: str, path: pathlib.Path, wanted: State, place: typing.Any, *, state: str, processes: int = 1) -> Taken:
    """`processes` load at once by the way of that name, from a place that is made `state` (cold or warm) when all are ready."""
    context, pairs = multiprocessing.get_context("fork"), []
    site = str(getattr(place, "site", None) or "")
    for _ in range(processes):
        here, there = context.Pipe()
        child = context.Process(target=_child, args=(there, WAYS[name], str(path), wanted, site), name=f"{name} of {path}")
        child.start()
        pairs.append((child, here))
    for child, end in pairs:
        _told_by(child, end)
    getattr(place, state)()
    with MemoryAtHand((processes + 2) * size_of(wanted)):
        before = place.meter()
        for _, end in pairs:
            end.send(True)
        all_of = [_told_by(child, end) for child, end in pairs]
        used = {what: value - before[what] for what, value in place.meter().items()}
    for child, end in pairs:
        end.send(True)
        child.join()
        if child.exitcode != 0:
            sys.exit(1)  # it has said why
    return Taken(size_of(wanted), max(one.took for one in all_of), sum(one.cpu for one in all_of),
                 max(one.peak for one in all_of), max(one.faults for one in all_of), used)
