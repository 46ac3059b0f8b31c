"""train.py DATA CHECKPOINT: trains the model on the text under DATA and saves it with torch.save. Prints one JSON line."""

import argparse
import json
import os
import pathlib
import sys
import time
import warnings

import torch
from torch import nn

import corpus
import model as models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("checkpoint", type=pathlib.Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=45, help="how long to train")
    parser.add_argument("--checkpoint-bytes", type=int, default=1 << 30)
    parser.add_argument("--text-bytes", type=int, default=24 << 20)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", message="Sparse invariant checks")

    started = time.perf_counter()
    text = torch.frombuffer(bytearray(corpus.read_text(arguments.data, arguments.text_bytes)), dtype=torch.uint8)
    read_seconds = time.perf_counter() - started

    model = models.NgramLanguageModel(models.buckets_for(arguments.checkpoint_bytes))
    tables = [p for name, p in model.named_parameters() if name.startswith("tables")]
    rest = [p for name, p in model.named_parameters() if not name.startswith("tables")]
    fast, slow = torch.optim.Adagrad(tables, lr=0.08), torch.optim.AdamW(rest, lr=2e-3)
    started, steps, losses = time.perf_counter(), 0, []
    while time.perf_counter() - started < arguments.seconds:
        at = torch.randint(0, len(text) - 257, (32,))
        batch = torch.stack([text[i : i + 257] for i in at]).long()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        fast.zero_grad()
        slow.zero_grad()
        loss.backward()
        fast.step()
        slow.step()
        losses.append(loss.item())
        steps += 1
        if sys.stderr.isatty() and steps % 10 == 0:
            print(f"\r\033[K  step {steps}  loss {sum(losses[-20:]) / len(losses[-20:]):.3f}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)

    saves = []
    for path in arguments.checkpoint:
        started = time.perf_counter()
        with open(path, "wb") as file:
            torch.save(model.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
        saves.append(time.perf_counter() - started)
    print(json.dumps({"read_seconds": read_seconds, "text_bytes": len(text), "steps": steps,
                      "first_loss": losses[0], "last_loss": sum(losses[-20:]) / len(losses[-20:]),
                      "save_seconds": saves, "checkpoint_bytes": arguments.checkpoint[0].stat().st_size,
                      "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
