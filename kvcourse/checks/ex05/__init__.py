"""Lesson 05: exercise 05, counting and finding wasted work. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "05_wasted_work",
    (
        Task("5.1", "rows of a run", "my_rows", "answer-rows", "check-rows", points=3),
        Task("5.2", "reusable rows", "my_reusable", "answer-reusable", "check-reusable", points=3),
        Task("5.3", "changed rows", "my_changed", "answer-changed", "check-changed", points=2),
        Task("5.4", "first layer that changes", "my_first_change", "answer-first-change", "check-first-change", points=3),
    ),
)
