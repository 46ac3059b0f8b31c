"""Damaged files: whatever the bytes, the readers answer with a clear exception or with tensors, and never with a crash. Also
the malicious ones: every number in a directory set to what hurts most. Seeds are printed by hypothesis on failure."""

import io
import json
import pickle
import struct

import hypothesis
import pytest
import safetensors.torch
import torch
from hypothesis import strategies

import starlane.torch as st

CLEAR = (st.FormatError, pickle.UnpicklingError, RuntimeError, MemoryError, OSError, NotImplementedError)
NASTY = [0, 1, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
hypothesis.settings.register_profile("short", max_examples=250, deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("short")


def checkpoint() -> bytes:
    buffer = io.BytesIO()
    weight = torch.arange(24.0).reshape(4, 6)
    torch.save({"a": weight, "b": weight.t(), "c": torch.arange(9, dtype=torch.int16), "d": torch.empty(0), "n": 3}, buffer)
    return buffer.getvalue()


CHECKPOINT = checkpoint()
SAFE = safetensors.torch.save({"a": torch.arange(24.0).reshape(4, 6), "b": torch.ones(3, dtype=torch.bfloat16)}, {"k": "v"})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "file"


def attempt(path, data: bytes) -> None:
    """Every reader of ours; what they return must be usable."""
    path.write_bytes(data)
    for read in (lambda: st.load(path), lambda: st.load_file(path),
                 lambda: st.load_into({"a": torch.zeros(4, 6)}, path, strict=False)):
        try:
            got = read()
        except CLEAR:
            continue
        for tensor in got.values() if isinstance(got, dict) else ():
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                tensor.clone()


@hypothesis.given(strategies.data())
def test_mutations(path, data):
    """Bytes changed, cut out, doubled, or numbers of 2, 4 and 8 bytes set to extremes, in both formats."""
    raw = bytearray(data.draw(strategies.sampled_from([CHECKPOINT, SAFE])))
    for _ in range(data.draw(strategies.integers(1, 4))):
        if len(raw) < 9:
            break
        at = data.draw(strategies.integers(0, len(raw) - 9))
        kind = data.draw(strategies.integers(0, 4))
        if kind == 0:
            raw[at] = data.draw(strategies.integers(0, 255))
        elif kind == 1:
            size = data.draw(strategies.sampled_from([2, 4, 8]))
            raw[at:at + size] = (data.draw(strategies.sampled_from(NASTY)) & (1 << 8 * size) - 1).to_bytes(size, "little")
        elif kind == 2:
            del raw[at:at + data.draw(strategies.integers(1, 200))]
        elif kind == 3:
            raw[at:at] = raw[at:at + data.draw(strategies.integers(1, 200))]
        else:
            del raw[at:]
    attempt(path, bytes(raw))


def fields_of_zip(raw: bytes):
    """Every number of the directory and its end."""
    end = raw.rfind(b"PK\x05\x06")
    yield from ((end + at, size) for at, size in ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)))
    at = raw.find(b"PK\x01\x02")
    while at >= 0:
        yield from ((at + where, size) for where, size in ((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2),
                                                           (34, 2), (42, 4)))
        at = raw.find(b"PK\x01\x02", at + 4)
    at = raw.find(b"PK\x03\x04")
    while at >= 0:
        yield from ((at + where, size) for where, size in ((0, 4), (8, 2), (26, 2), (28, 2)))
        at = raw.find(b"PK\x03\x04", at + 4)


def test_every_number_of_the_directory(path):
    for at, size in fields_of_zip(CHECKPOINT):
        for value in (0, 1, 0x7FFF, 0xFFFFFFFF, 0xFFFFFFFE):
            raw = bytearray(CHECKPOINT)
            raw[at:at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
            attempt(path, bytes(raw))


def test_every_truncation(path):
    for raw, step in ((CHECKPOINT, 13), (SAFE, 1)):
        for length in range(0, len(raw), step):
            path.write_bytes(raw[:length])
            with pytest.raises(CLEAR):
                (st.load if raw is CHECKPOINT else st.load_file)(path)


def safe_file(header: object, data: bytes = bytes(96)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


TENSOR = {"dtype": "F32", "shape": [4, 6], "data_offsets": [0, 96]}


@pytest.mark.parametrize("header", [
    [], 1, b"{", b"\xff\xfe", b'{"a": ' * 20000, {"a": 1}, {"a": {}}, {"a": TENSOR | {"shape": [4, 7]}},
    {"a": TENSOR | {"data_offsets": [0, 97]}}, {"a": TENSOR | {"data_offsets": [-96, 0]}},
    {"a": TENSOR | {"data_offsets": [96, 0]}},
    {"a": TENSOR, "b": TENSOR}, {"a": TENSOR | {"shape": [1 << 62, 1 << 62]}}, {"a": TENSOR | {"shape": [True, 24]}},
    {"a": TENSOR | {"shape": [2.5]}}, {"a": TENSOR | {"shape": "46"}}, {"a": TENSOR | {"dtype": "F4096"}}, {"__metadata__": 3},
    {"a": TENSOR | {"data_offsets": [1 << 70, 1 << 71]}}, {"__metadata__": {"k": 1}}, b'{"a":1,"a":2}', {},
])
def test_malicious_safetensors(path, header):
    path.write_bytes(safe_file(header))
    with pytest.raises(st.FormatError):
        st.load_file(path)


def test_header_length_beyond_the_file(path):
    for size in (89, 1 << 20, 100_000_001, (1 << 64) - 1):
        path.write_bytes(struct.pack("<Q", size) + bytes(88))
        with pytest.raises(st.FormatError, match="header"):
            st.load_file(path)


def test_storage_asked_for_is_longer_than_its_record(path):
    """data.pkl says more elements than the record has: it would be a read beyond it."""
    raw = CHECKPOINT.replace(b"K\x18t", b"K\x7ft", 1)
    assert raw != CHECKPOINT
    path.write_bytes(raw)
    with pytest.raises(st.FormatError, match="bytes"):
        st.load(path)
