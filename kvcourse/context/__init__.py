"""Lesson 12: what stands in the window, who decides that, and what it costs."""
