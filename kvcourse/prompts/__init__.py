"""Lessons 10 and 13: prompts that share, and why one did not."""
