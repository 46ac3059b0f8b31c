"""`--load-format starlane` for vLLM: where this package is installed beside it, vLLM finds it by itself.

    vllm serve /mnt/starlane/public/llama/v3 --load-format starlane
    vllm serve … --load-format starlane --model-loader-extra-config '{"device": "cuda"}'

Shards are read whole, in the order of their bytes, with many reads in flight; vLLM takes each tensor as it lands. What it does
with them, and how it finds the files of a model, is vLLM's own code. Files of other formats (`.bin`, `.pt`) are left to it."""

from __future__ import annotations

import copy
import time
from collections.abc import Generator, Iterator
from typing import Any

import torch
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

import starlane.torch as st
from starlane.torch._transfer import THREADS

LOAD_FORMAT = "starlane"
_OPTIONS = {"device", "threads"}


@register_model_loader(LOAD_FORMAT)
class Loader(DefaultModelLoader):  # type: ignore[misc, unused-ignore]
    """Options in model_loader_extra_config, beside vLLM's own:

    threads: that read at once. device: "cpu" (vLLM moves tensors to its device), or the device itself, "cuda": then each shard
    goes there through pinned memory, and lies there whole until vLLM has taken its tensors."""

    counter_before_loading_weights: float  # vLLM's: it logs how long it took since then

    def __init__(self, load_config: LoadConfig):
        options = load_config.model_loader_extra_config
        options = dict(options) if isinstance(options, dict) else {}
        theirs = copy.copy(load_config)
        theirs.load_format = "hf"  # so that vLLM looks for files of every format, *.safetensors first
        if options:
            theirs.model_loader_extra_config = {key: value for key, value in options.items() if key not in _OPTIONS}
        super().__init__(theirs)
        self._threads, self._device = options.get("threads", THREADS), options.get("device", "cpu")
        if not isinstance(self._threads, int) or self._threads < 1:
            raise ValueError(f"threads is {self._threads!r} in model_loader_extra_config; give 1 or more")

    def _get_weights_iterator(self, source: Any) -> Generator[tuple[str, torch.Tensor], None, None]:
        _, files, use_safetensors, *_ = self._prepare_weights(source.model_or_path, source.subfolder, source.revision,
                                                              source.fall_back_to_pt, source.allow_patterns_overrides)
        if not use_safetensors:
            yield from super()._get_weights_iterator(source)
            return
        if self.counter_before_loading_weights == 0.0:
            self.counter_before_loading_weights = time.perf_counter()
        for file in sorted(files):
            for name, tensor in self._tensors(file):
                yield source.prefix + name, tensor

    def _tensors(self, file: str) -> Iterator[tuple[str, torch.Tensor]]:
        if self._device != "cpu":
            yield from st.load_file(file, self._device, threads=self._threads).items()
            return
        with st.safe_open(file, threads=self._threads) as opened:
            yield from opened.tensors()


def register() -> None:
    """The entry point, of the group vllm.general_plugins. vLLM calls it in each of its processes, some of them twice; that
    this module was imported is all there is to it."""
