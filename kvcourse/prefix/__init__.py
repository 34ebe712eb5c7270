"""Lesson 10: work reused between requests. `cache` is what an engine calls; the rest is bookkeeping on integers."""
