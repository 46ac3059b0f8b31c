"""A small real language model on bytes. Each position sees the hashes of the last 1 to 6 bytes, looks each up in a large
embedding table, and a small network turns their sum into the next byte. Large tables and little arithmetic: it learns in
a minute on two cores, and its checkpoint is as large as a real one."""

import torch
from torch import nn

ORDERS = (1, 2, 3, 4, 5, 6)


class NgramLanguageModel(nn.Module):
    def __init__(self, buckets: int, width: int = 256):
        super().__init__()
        self.buckets, self.width = buckets, width
        self.tables = nn.ModuleList(nn.Embedding(256 if n == 1 else buckets, width, sparse=True) for n in ORDERS)
        for table in self.tables:
            nn.init.normal_(table.weight[: min(table.num_embeddings, 4096)], std=0.02)
            table.weight.data[4096:].zero_()
        self.mix = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, 256)

    def hashes(self, text: torch.Tensor) -> list[torch.Tensor]:
        """(batch, time) bytes -> for each order a (batch, time) row number: of the n bytes that end there."""
        rows, key = [], torch.zeros_like(text)
        for n in ORDERS:
            shifted = torch.zeros_like(text)
            shifted[:, n - 1 :] = text[:, : text.shape[1] - n + 1]
            key = (key * 1000003 + shifted + 1) & 0x7FFFFFFFFFFF
            rows.append(text if n == 1 else (key ^ (key >> 17)) % self.buckets)
        return rows

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """(batch, time) int64 bytes -> (batch, time, 256) logits of the next byte."""
        seen = sum(table(row) for table, row in zip(self.tables, self.hashes(text)))
        return self.head(seen + self.mix(seen))


def buckets_for(checkpoint_bytes: int, width: int = 256) -> int:
    """How many rows a table has, for a checkpoint of about that size."""
    return max(4096, checkpoint_bytes // (4 * width * (len(ORDERS) - 1)))


@torch.no_grad()
def answer(model: nn.Module, prompt: str, length: int = 240, temperature: float = 0.5) -> str:
    torch.manual_seed(1)
    text = list(prompt.encode())
    for _ in range(length):
        logits = model(torch.tensor([text[-16:]]))[0, -1] / temperature
        text.append(int(torch.multinomial(logits.softmax(-1), 1)))
    return bytes(text).decode(errors="replace")
