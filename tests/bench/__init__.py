"""The figures of ARCHITECTURE.md: `python -m tests.bench`, or `make bench`."""
