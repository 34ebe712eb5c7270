"""Lesson 11: conversations that keep their K/V between turns, fork, and survive on disk."""
