"""Numbers in sentences."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 event`, `2,000 events`; `many` is for words whose plural takes more than an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
