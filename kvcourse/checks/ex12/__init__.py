"""Lesson 12: exercise 12, a budget for the window. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "12_context_budget",
    (
        Task("12.1", "the ledger", "my_ledger", "answer-ledger", "check-ledger", points=3),
        Task("12.2", "the square law", "my_forecast", "answer-forecast", "check-forecast", points=2),
        Task("12.3", "crop whole steps", "my_crop", "answer-crop", "check-crop", points=3),
        Task("12.4", "compact, and stay warm", "my_compact", "answer-compact", "check-compact", points=4),
    ),
)
