"""The chat side: platforms, gateway, coordination, card, playground, service. Builds on `harness`."""
