"""Checkpoints at the speed of the storage, for PyTorch.

    import starlane.torch
    state = starlane.torch.load("/mnt/starlane/volumes/work/model.pt", map_location="cpu")
    state = starlane.torch.load_file("/mnt/starlane/public/llama/v3", device="cuda:0")
    starlane.torch.load_into(model, "/mnt/starlane/volumes/work/model.pt")
    starlane.torch.save(model.state_dict(), "/mnt/starlane/volumes/work/model.pt")
    print(starlane.torch.last_report())

See README.md beside this file for what is read how."""

from starlane.torch._format import FormatError
from starlane.torch._load import load
from starlane.torch._load_file import load_file
from starlane.torch._load_into import Loaded, load_into
from starlane.torch._patch import patch
from starlane.torch._safe_open import safe_open
from starlane.torch._save import keep_last, save
from starlane.torch.report import Report
from starlane.torch.report import last as last_report

__all__ = ["FormatError", "Loaded", "Report", "keep_last", "last_report", "load", "load_file", "load_into", "patch", "safe_open",
           "save"]
