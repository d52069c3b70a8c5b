"""Count events until it is killed, and print a line for each page: `python -m tests.integration.programs.counting URL`."""

import sys

import holdfast

if __name__ == "__main__":
    with holdfast.open(sys.argv[1]) as ledger:
        sys.stdout.write('"ready"\n')
        sys.stdout.flush()
        while True:
            # Small pages, so that a kill comes in the middle of one.
            if ledger.history_writer.advance(20):
                sys.stdout.write(f"{ledger.job_totals().as_of.pos}\n")
                sys.stdout.flush()
