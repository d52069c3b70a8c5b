"""A client that is stopped in mid-transaction: locks the rows of the jobs in a line, reports it, and waits for another line.

`python -m tests.blast.programs.locker URL`
"""

import sys

import psycopg

from tests.blast.place import Place


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    place = Place.of(sys.argv[1])
    with psycopg.connect(place.server) as connection:
        say("ready")
        ids = [int(id_) for id_ in sys.stdin.readline().split()]
        connection.execute(f"SELECT FROM {place.schema}.jobs WHERE id = ANY (%s) FOR UPDATE", [ids])
        say("locked")
        sys.stdin.readline()
