"""Files that a command writes: whole, or not at all."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from holdfast.cli.envelope import misuse


@contextmanager
def written_to(out: Path | None) -> Iterator[BinaryIO]:
    """The file, which takes its name once everything is in it; standard output where none is named."""
    if out is None:
        yield sys.stdout.buffer
        return
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise misuse(f"{out} cannot be written: {error.strerror}", action="Name another file.") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
