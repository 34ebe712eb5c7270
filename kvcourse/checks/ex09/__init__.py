"""Lesson 09: exercise 09, blocks of memory that sequences share. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "09_pages",
    (
        Task("9.1", "take", "my_take", "answer-take", "check-take", points=2),
        Task("9.2", "give back", "my_give_back", "answer-give-back", "check-give-back", points=3),
        Task("9.3", "places", "my_places", "answer-places", "check-places", points=2),
        Task("9.4", "copy on write", "my_write_shared", "answer-write", "check-write", points=4),
    ),
)
