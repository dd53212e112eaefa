"""A complete agent harness: provider, engine, tools, approval, runtime, stores, terminal.

The kernel knows no chat platform, no web framework and no Redis; the `bots` package builds on it.
"""

__version__ = "0.1.0"
