"""Training data from a published tree.

    from starlane.data import Samples, Tree

    tree = Tree("/mnt/starlane/public/books/2024-06")
    data = Samples(tree.files("*.txt"), seed=1)          # or tree.tar_samples(), tree.row_groups()
    loader = torchdata.stateful_dataloader.StatefulDataLoader(data, batch_size=None, num_workers=4)

Importing this package imports torch only when `Samples` is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlane.data.order import Order
from starlane.data.tree import Tree
from starlane.data.units import Part, Unit, Units

if TYPE_CHECKING:
    from starlane.data.samples import Samples

__all__ = ["Order", "Part", "Samples", "Tree", "Unit", "Units"]


def __getattr__(name: str) -> Any:
    if name == "Samples":
        from starlane.data.samples import Samples

        return Samples
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
