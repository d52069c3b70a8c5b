"""Anchors: copies of tree heads in places that a person with access to the database cannot change."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.errors import ValidationError
from holdfast.keeping.service import Service
from holdfast.store.sealing import HeadRow

log = logging.getLogger("holdfast.seal")

ANCHOR_SECONDS = 60.0


class Anchor(Protocol):
    """A place that stores heads. If it raises, it is still given the next head."""

    name: str

    def keep(self, head: HeadRow) -> None: ...


class FileAnchor:
    """Append heads to a file as signed notes, each with a blank line after it. Each is synced to disk before the next."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.name = f"file {self._path.name}"
        if self._path.is_dir() or not self._path.absolute().parent.is_dir():
            raise ValidationError(f"{self._path} cannot be a file: it is a folder, or its folder does not exist", field="anchor")

    def keep(self, head: HeadRow) -> None:
        is_new = not self._path.exists()
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            _write(descriptor, _separator(descriptor) + head.note.encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            _sync_folder(self._path.absolute().parent)


def _separator(descriptor: int) -> bytes:
    """Return the separator before the next note: a blank line if the last note was cut off."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    last = os.pread(descriptor, 2, max(0, end - 2))
    return b"" if end == 0 or last == b"\n\n" else b"\n\n"


def _write(descriptor: int, body: bytes) -> None:
    while body:
        body = body[os.write(descriptor, body) :]


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class AnchorService(Service):
    """A service that gives the newest head to each anchor at an interval. It runs beside the sealer and never delays it."""

    name = "anchor"
    every_s = 0.5

    def __init__(
        self,
        anchors: Sequence[Anchor],
        newest: Callable[[], HeadRow | None],
        every: Any,
        monotonic: Callable[[], float],
    ) -> None:
        self.anchors = tuple(anchors)
        self._newest = newest
        self._every_s = policies.duration_ms("anchor_every", every, 0, limits.ANCHOR_MS_MAX) / 1_000
        self._monotonic = monotonic
        self._tried_at = [float("-inf")] * len(self.anchors)
        self._kept_size = [0] * len(self.anchors)

    def tick(self) -> int:
        """Give the newest head to the anchors that are due. Return how many have kept it."""
        now = self._monotonic()
        return sum(self._keep(number) for number, at in enumerate(self._tried_at) if now - at >= self._every_s)

    def _keep(self, number: int) -> bool:
        head, anchor = self._newest(), self.anchors[number]
        if head is None or head.size <= self._kept_size[number]:
            return False
        self._tried_at[number] = self._monotonic()
        try:
            anchor.keep(head)
        except Exception as error:  # noqa: BLE001 - an anchor may raise anything: sealing continues
            log.warning("the anchor %s did not keep the head of size %d: %s", anchor.name, head.size, error)
            return False
        self._kept_size[number] = head.size
        return True

    def close(self) -> None:
        """Give the newest head to each anchor that does not have it yet."""
        for number in range(len(self.anchors)):
            self._keep(number)
