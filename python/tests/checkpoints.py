"""Checkpoints for tests, and a comparison of every bit of them."""

import pathlib

import torch


def state_dict() -> dict[str, torch.Tensor]:
    """Of every kind that matters: types, views, tied, empty, transposed, scalars, one that spans several chunks."""
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(64, 48, generator=generator)
    state = {f"layer.{i}": torch.randn(17, 33, generator=generator) for i in range(12)}
    state |= {"weight": weight, "tied": weight, "transposed": weight.t(), "rows": weight[3:9], "empty": torch.empty(0, 3),
              "scalar": torch.tensor(3.5), "large": torch.randn(5_000_011, generator=generator),
              "mask": torch.rand(31, generator=generator) > 0.5, "steps": torch.arange(7)}
    for name in ("bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "int8", "uint8", "int16"):
        state[name] = (torch.randn(129, generator=generator) * 5).to(getattr(torch, name))
    return state


def plain(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As safetensors takes it: contiguous, nothing shared."""
    return {name: tensor.contiguous().clone() for name, tensor in state.items()}


def bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def assert_same(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert list(got) == list(wanted) or sorted(got) == sorted(wanted)
    for name, tensor in wanted.items():
        assert (got[name].dtype, got[name].shape) == (tensor.dtype, tensor.shape), name
        assert bits(got[name]) == bits(tensor), name


def moe(path: pathlib.Path, tensors: int) -> dict[str, torch.Tensor]:
    """Many small tensors."""
    state = {f"expert.{i}.w": torch.full((8, 16), float(i), dtype=torch.bfloat16) for i in range(tensors)}
    torch.save(state, path)
    return state
