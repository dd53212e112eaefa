"""What a model is told besides the last message: instructions, skills, and the past when it no longer fits."""
