"""Model providers: one interface, several wire protocols."""
