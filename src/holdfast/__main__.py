"""`python -m holdfast`: the command line."""

from holdfast.program import main

main()
