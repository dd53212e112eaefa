"""`python -m bots`."""

from bots.cli import main

main()
