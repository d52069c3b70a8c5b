"""A client that is stopped in mid-transaction: locks the rows of the given jobs, says so, and waits for a line.

`python -m tests.blast.programs.locker URL JOB…`
"""

import sys

import psycopg

from tests.blast.place import Place

if __name__ == "__main__":
    url, *ids = sys.argv[1:]
    place = Place.of(url)
    with psycopg.connect(place.server) as connection:
        connection.execute(f"SELECT FROM {place.schema}.jobs WHERE id = ANY (%s) FOR UPDATE", [[int(id_) for id_ in ids]])
        sys.stdout.write("locked\n")
        sys.stdout.flush()
        sys.stdin.readline()
