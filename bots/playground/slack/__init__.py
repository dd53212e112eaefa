"""A local server that behaves like Slack towards an app: Web API, Events API over HTTP, interactivity.

Its rules come from Slack's documents. It imports no adapter and none of our limit tables, and it is strict: what
Slack would refuse it refuses, and what a correct app never does it writes down in `violations`.
"""
