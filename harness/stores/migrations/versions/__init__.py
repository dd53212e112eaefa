"""The steps. Once released a file never changes: databases have taken it."""
