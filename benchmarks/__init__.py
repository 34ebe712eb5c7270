"""Lesson 07: side by side with peers: one command, one table. Equal tokens before speed, ratios of one run, spread shown."""
