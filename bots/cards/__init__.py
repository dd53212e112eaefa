"""The card: one message per task that shows what the task does."""
