"""The directory of a zip file as torch.save writes it (torch 1.6 and later): stored records, aligned data, zip64. Every
number is checked before it is used; what torch does not write (compression, encryption, several disks, records that overlap
or lie outside) is refused with FormatError, so that no file can make a loader allocate or read what is not there."""

from __future__ import annotations

import dataclasses
import struct

from starlane.torch._format import FormatError
from starlane.torch._source import Ends

_END, _END64, _LOCATOR64 = struct.Struct("<4s4H2IH"), struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI")
_ENTRY, LOCAL = struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
_MOST_COMMENT = 0xFFFF
_LARGE = 0xFFFFFFFF
_MOST_DIRECTORY = 1 << 30
_ENCRYPTED = 1


@dataclasses.dataclass(frozen=True)
class Record:
    """A stored record. header_at: of its local header in the file; size: of its data, bytes."""

    name: bytes
    size: int
    header_at: int
    crc32: int

    def data_at(self, alignment: int) -> int:
        """Where torch's writer puts its data: behind the header, the name and padding (caffe2's getPadding)."""
        start = self.header_at + LOCAL.size + len(self.name) + 4
        if self.size >= _LARGE or self.header_at >= _LARGE:
            start += 4 + (16 if self.size >= _LARGE else 0) + (8 if self.header_at >= _LARGE else 0)
        return start + -start % alignment


def _u64(values: memoryview, at: int) -> int:
    if at + 8 > len(values):
        raise FormatError("a zip64 field of the directory is cut off")
    return int(struct.unpack_from("<Q", values, at)[0])


class Directory:
    """records: by name without the archive's own folder, in the order of their data."""

    def __init__(self, ends: Ends):
        self._ends, self._name = ends, ends.source.name
        at, size, count = self._find_end()
        raw = ends.read(at, size)
        self.end = at  # data lies before it
        found = self._entries(raw, count)
        if not found:
            raise FormatError(f"{self._name} holds no records")
        self.folder = found[0].name.split(b"/")[0] + b"/"
        self.records: dict[str, Record] = {}
        for record in sorted(found, key=lambda one: one.header_at):
            if not record.name.startswith(self.folder):
                raise FormatError(f"{self._name} is no checkpoint: its records lie in several folders")
            name = record.name[len(self.folder):].decode("utf-8", "surrogateescape")
            if name in self.records:
                raise FormatError(f"{self._name} is damaged: it has two records {name}")
            self.records[name] = record
        self._check_order()

    def _damaged(self, what: str) -> FormatError:
        return FormatError(f"{self._name} is damaged: {what}")

    def _find_end(self) -> tuple[int, int, int]:
        """Offset and size of the directory, and how many entries it has."""
        length = self._ends.source.length
        window = min(length, _END.size + _MOST_COMMENT)
        tail = self._ends.read(length - window, window)
        at = tail.rfind(b"PK\x05\x06")
        while at >= 0:
            if at + _END.size <= len(tail):
                _, disk, first, here, count, size, offset, comment = _END.unpack_from(tail, at)
                if at + _END.size + comment == len(tail):
                    break
            at = tail.rfind(b"PK\x05\x06", 0, at)
        if at < 0:
            raise FormatError(f"{self._name} is no zip file, or is truncated: its directory is not at its end")
        end_at = length - window + at
        if 0xFFFF in (disk, first, here, count) or _LARGE in (size, offset):
            end_at, disk, first, here, count, size, offset = self._find_end64(end_at)
        if disk or first or here != count:
            raise self._damaged("it says that it is spread over several disks")
        if offset + size > end_at or size > _MOST_DIRECTORY or count * _ENTRY.size > size:
            raise self._damaged("its directory does not lie where it says")
        return offset, size, count

    def _find_end64(self, end_at: int) -> tuple[int, int, int, int, int, int, int]:
        _sign, _disk, at, _disks = _LOCATOR64.unpack(self._ends.read(end_at - _LOCATOR64.size, _LOCATOR64.size))
        if _sign != b"PK\x06\x07":
            raise self._damaged("the locator of its zip64 directory is not there")
        if at + _END64.size > end_at:
            raise self._damaged("its zip64 directory does not lie where it says")
        sign, _, _, _, disk, first, here, count, size, offset = _END64.unpack(self._ends.read(at, _END64.size))
        if sign != b"PK\x06\x06":
            raise self._damaged("its zip64 directory is not there")
        return at, disk, first, here, count, size, offset

    def _entries(self, raw: bytes, count: int) -> list[Record]:
        view, at, found = memoryview(raw), 0, []
        for _ in range(count):
            if at + _ENTRY.size > len(raw):
                raise self._damaged("its directory is cut off")
            (sign, _, _, flags, method, _, _, crc, packed, size, name_length, extra_length, comment_length, disk, _, _,
             header_at) = _ENTRY.unpack_from(raw, at)
            if sign != b"PK\x01\x02":
                raise self._damaged("an entry of its directory is none")
            name_at = at + _ENTRY.size
            at = name_at + name_length + extra_length + comment_length
            if at > len(raw):
                raise self._damaged("its directory is cut off")
            name = raw[name_at:name_at + name_length]
            if _LARGE in (packed, size, header_at):
                extra = view[name_at + name_length:name_at + name_length + extra_length]
                size, packed, header_at = self._large(extra, size, packed, header_at)
            if flags & _ENCRYPTED or method != 0 or packed != size:
                raise FormatError(f"{self._name} holds a compressed or encrypted record ({name[:80]!r}); torch.save writes none. "
                                  "If you trust the file, unpack it and save it again")
            if disk not in (0, 0xFFFF) or header_at + LOCAL.size + name_length + size > self._ends.source.length:
                raise self._damaged(f"the record {name[:80]!r} goes beyond its end")
            found.append(Record(name, size, header_at, crc))
        return found

    @staticmethod
    def _large(extra: memoryview, size: int, packed: int, header_at: int) -> tuple[int, int, int]:
        """The numbers of a zip64 field take the place of those that are all ones, in this order."""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                field, place = extra[at + 4:at + 4 + length], 0
                if size == _LARGE:
                    size, place = _u64(field, place), place + 8
                if packed == _LARGE:
                    packed, place = _u64(field, place), place + 8
                if header_at == _LARGE:
                    header_at = _u64(field, place)
                return size, packed, header_at
            at += 4 + length
        return size, packed, header_at

    def _check_order(self) -> None:
        ordered = list(self.records.values())
        self._limits: dict[bytes, int] = {}
        for record, following in zip(ordered, [*ordered[1:], None], strict=True):
            limit = following.header_at if following else self.end
            if record.header_at + LOCAL.size + len(record.name) + record.size > limit:
                raise self._damaged(f"the record {record.name[:80]!r} overlaps what follows it")
            self._limits[record.name] = limit

    def end_of(self, record: Record) -> int:
        """Where the next record's header, or the directory, begins: its data ends before that."""
        return self._limits[record.name]

    def data_after(self, record: Record, header: bytes | memoryview) -> int:
        """Where the data of a record begins, by its local header (30 bytes at header_at)."""
        sign, _, _, method, _, _, _, _, _, name_length, extra_length = LOCAL.unpack(bytes(header[:LOCAL.size]))
        if sign != b"PK\x03\x04" or method != 0 or name_length != len(record.name):
            raise self._damaged(f"the header of the record {record.name[:80]!r} is not where the directory says")
        return record.header_at + LOCAL.size + int(name_length) + int(extra_length)

    def read(self, name: str) -> bytes:
        """A small record. KeyError: there is none."""
        record = self.records[name]
        at = self.data_after(record, self._ends.read(record.header_at, LOCAL.size))
        if at + record.size > self.end_of(record):
            raise self._damaged(f"the record {name} overlaps what follows it")
        return self._ends.read(at, record.size)
