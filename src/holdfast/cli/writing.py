"""Files that a command writes: whole, or not at all."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from holdfast.cli.ending import Unread
from holdfast.cli.envelope import Failed, misuse

Write = Callable[[bytes], object]


@contextmanager
def written_to(out: Path | None) -> Iterator[Write]:
    """Writes to the file, which takes its name once everything is in it; to standard output where none is named."""
    if out is None:
        yield _into(sys.stdout.buffer, "standard output")
        return
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as file:
            yield _into(file, str(out))
            file.flush()
            os.fsync(file.fileno())
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise _unwritten(str(out), error) from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _into(stream: BinaryIO, name: str) -> Write:
    """What goes wrong here is no fault of the ledger, in whose transaction it is called."""

    def write(line: bytes) -> None:
        try:
            stream.write(line)
        except BrokenPipeError as error:
            raise Unread from error
        except OSError as error:
            raise _unwritten(name, error) from None

    return write


def _unwritten(name: str, error: OSError) -> Failed:
    return misuse(f"{name} cannot be written: {error.strerror}", action="Name another file.")
