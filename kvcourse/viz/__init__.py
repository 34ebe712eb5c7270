"""Every lesson: what a notebook shows. Knows nothing about how anything is computed, and imports no torch by itself.

`style` holds the one look of all figures, `plots` the figures, `source` shows the package's own code. Figure functions take
plain lists and NumPy arrays and return a matplotlib Figure, so that the last line of a cell shows it. `widgets` holds what can
be clicked; `recording` runs a model and keeps what `stepper` draws.
"""

import importlib

_PLACES = {
    "show_source": "kvcourse.viz.source",
    "show_diff": "kvcourse.viz.source",
    "plot_next_tokens": "kvcourse.viz.plots",
    "draw_signed": "kvcourse.viz.plots",
    "plot_attention": "kvcourse.viz.attention_plots",
    "plot_projection": "kvcourse.viz.projection",
    "LiveCurve": "kvcourse.viz.training_plot",
    "cache_stepper": "kvcourse.viz.widgets",
    "next_token_explorer": "kvcourse.viz.widgets",
    "model_map": "kvcourse.viz.model_map_widget",
    "attention_viewer": "kvcourse.viz.attention_widget",
    "plot_passes": "kvcourse.viz.work_plots",
    "plot_counts": "kvcourse.viz.work_plots",
    "plot_reach": "kvcourse.viz.work_plots",
    "plot_seconds": "kvcourse.viz.work_plots",
    "plot_copied": "kvcourse.viz.speed_plots",
    "plot_speed": "kvcourse.viz.speed_plots",
    "plot_ring": "kvcourse.viz.smaller_plots",
    "plot_first_token": "kvcourse.viz.smaller_plots",
    "plot_losses": "kvcourse.viz.smaller_plots",
    "plot_channels": "kvcourse.viz.smaller_plots",
    "plot_memory_and_error": "kvcourse.viz.smaller_plots",
    "memory_plot": "kvcourse.viz.memory_plots",
    "draw_memory": "kvcourse.viz.memory_plots",
    "memory_calculator": "kvcourse.viz.memory_widget",
    "plot_trees": "kvcourse.viz.prefix_tree",
    "prefix_explorer": "kvcourse.viz.prefix_widget",
    "budget_gauges": "kvcourse.viz.budget_widget",
    "layout_editor": "kvcourse.viz.layout_widget",
}
_MODULES = (
    "moments",
    "plots",
    "projection",
    "recording",
    "source",
    "stepper",
    "style",
    "training_plot",
    "widgets",
    "work_plots",
)

__all__ = [*_PLACES, *_MODULES]


def __getattr__(name: str) -> object:
    """Import on first use: showing a function's source needs no matplotlib."""
    if name in _MODULES:
        return importlib.import_module(f"kvcourse.viz.{name}")
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'kvcourse.viz' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
