"""Reporters show a person the run. They are not loggers: logs show an operator the system."""
