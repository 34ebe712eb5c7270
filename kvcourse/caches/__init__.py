"""Lessons 06 to 09: KV caches, one kind a file, all behind the contract in `base`."""
