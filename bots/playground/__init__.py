"""The playground: local stand-ins for the chat platforms, one page that shows them, and a control API for tests.

It speaks the vendors' own protocols, so that the real adapters run against it unchanged. It imports no adapter and
none of our limit tables: its rules come from the vendors' documents, so that it can prove us wrong.
"""
