"""`python -m holdfast`: the command line."""

from holdfast.cli import main

main()
