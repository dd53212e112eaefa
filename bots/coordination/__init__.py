"""Coordination over Redis: one running task per session across replicas, crashes and restarts of Redis itself."""
