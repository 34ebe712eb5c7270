"""Lessons 03 and 08: the two model shapes, GPT-2's and Llama's."""
