"""Lesson 11: exercise 11, conversations that last. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "11_sessions",
    (
        Task("11.1", "resume", "my_send", "answer-send", "check-send", points=4),
        Task("11.2", "branch at a turn", "my_branch", "answer-branch", "check-branch", points=3),
        Task("11.3", "a template's drift", "my_drift", "answer-drift", "check-drift", points=3),
        Task("11.4", "the wrong file", "my_fault", "answer-fault", "check-fault", points=3),
    ),
)
