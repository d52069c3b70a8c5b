"""`python -m holdfast`: the command line."""

from _holdfast_program import main

main()
