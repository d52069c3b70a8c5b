"""Reads a ledger's file as another program would, and keeps its transaction open until it gets a line. Then it ends it."""

import sys

import apsw


def main(path: str) -> None:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
    sys.stdout.write('"reads"\n')
    sys.stdout.flush()
    sys.stdin.readline()
    connection.execute("COMMIT")
    sys.stdout.write('"ended"\n')
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1])
