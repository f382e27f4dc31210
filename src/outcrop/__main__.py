"""`python -m outcrop` is the command `outcrop`."""

from outcrop.cli import main

main()
