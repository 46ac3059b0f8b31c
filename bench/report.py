"""What the programs of this folder print and draw."""

from __future__ import annotations

import argparse
import os
import pathlib

MIB, GIB = 1 << 20, 1 << 30


def bytes_of(text: str) -> int:
    """2GiB, 512MiB, or a number of bytes; for argparse."""
    try:
        for suffix, factor in (("GiB", GIB), ("MiB", MIB)):
            if text.endswith(suffix):
                return int(float(text[:-3]) * factor)
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no size; give one as 2GiB, 512MiB, or a number of bytes") from None


def machine() -> str:
    return f"{os.cpu_count()} cores, kernel {os.uname().release}, load {os.getloadavg()[0]:.1f}"


def show(rows: list[list[str]], right: tuple[int, ...] = ()) -> None:
    """Columns as wide as they need to be; those in `right` end in line."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.rjust(width) if number in right else cell.ljust(width)
                        for number, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip())


def draw(chart: pathlib.Path, title: str, panels: dict[str, dict[str, dict[str, float]]]) -> None:
    """A figure of bars: a panel for each title, in it groups by name, in each a bar for each series."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    series = list(dict.fromkeys(one for groups in panels.values() for group in groups.values() for one in group))
    width = 0.84 / len(series)
    figure, places = pyplot.subplots(len(panels), 1, figsize=(11, 1 + 3.2 * len(panels)), layout="constrained", squeeze=False)
    for place, (name, groups) in zip(places.flat, panels.items(), strict=True):
        for number, one in enumerate(series):
            there = [(at, group[one]) for at, group in enumerate(groups.values()) if one in group]
            bars = place.bar([at + number * width for at, _ in there], [value for _, value in there], width,
                             color=f"C{number}", label=one)
            place.bar_label(bars, fmt="%.3g", fontsize=7)
        place.set_xticks([at + 0.42 - width / 2 for at in range(len(groups))], list(groups))
        place.set_title(name)
    places[0, 0].legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.savefig(chart)
