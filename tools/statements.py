"""Prints statements as the database gets them, with their parts: `python -m tools.statements postgres claim settle`."""

import sys

from holdfast.store.statements import statements


def main() -> None:
    store, *names = sys.argv[1:]
    found = statements(f"holdfast.store.{store}")
    for name in names or sorted(found):
        sys.stdout.write(f"-- name: {name}\n{found[name]};\n\n")


if __name__ == "__main__":
    main()
