"""Doubles and local servers for tests and trials. Import the module that you need; importing this one costs nothing."""
