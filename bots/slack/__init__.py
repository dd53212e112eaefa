"""Slack: from its HTTP requests to our inbound values, and from a card's view to its messages."""
