"""Lesson 08: exercise 08, a smaller cache. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

EXERCISE = Exercise(
    "08_smaller_cache",
    (
        Task("8.1", "ring of slots", "my_slots", "answer-slots", "check-slots", points=3),
        Task("8.2", "window with sinks", "my_window", "answer-window", "check-window", points=2),
        Task("8.3", "grouped heads", "my_expand", "answer-expand", "check-expand", points=1),
        Task("8.4", "codes", "my_quantize", "answer-quantize", "check-quantize", points=3),
        Task("8.5", "numbers again", "my_dequantize", "answer-dequantize", "check-dequantize", points=1),
    ),
    withheld=("torch.quantize_per_channel", "torch.quantize_per_tensor", "torch.fake_quantize_per_channel_affine"),
)
