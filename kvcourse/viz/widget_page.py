"""Every lesson: what a page needs so that a widget can be used there, a style and a script. Knows nothing about widgets.

`widgets.Live` puts both into a cell's last output. A page that ignores them (GitHub, a PDF) shows the figure, as it should.
"""

from kvcourse.viz.style import INK

LIVE = "kvcourse-live"  # the class of every widget of the course

# JupyterLab saves a widget's view without the widget, and then shows "model not found" in its place. So the figure is an output
# of its own, hidden while a live widget stands above it; a view whose widget or kernel is gone is hidden in turn. Only a view
# has no data-mime-type.
_ALIVE, _OUTPUT = f".{LIVE}:not(.jupyter-widgets-disconnected)", ".jp-OutputArea-child"
RULES = (
    f"{_OUTPUT}:has(+ {_OUTPUT} + {_OUTPUT} .{LIVE}-rules):not(:has({_ALIVE})):not(:has([data-mime-type])),"
    f"{_OUTPUT}:has({_ALIVE}) + {_OUTPUT}:has(+ {_OUTPUT} .{LIVE}-rules),"
    f"{_OUTPUT}:has({_ALIVE}) + {_OUTPUT} + {_OUTPUT}:has(.{LIVE}-rules) {{ display: none }}"
    # Where the keyboard is must be seen; a slider's handle and a list show nothing by themselves.
    f".{LIVE} :is(button, select, input, .noUi-handle):focus-visible"
    f"{{ outline: 2px solid {INK} !important; outline-offset: 1px }}"
    f".{LIVE} .widget-html-content {{ line-height: 1.45 }}"  # lines that belong together; ipywidgets keeps them apart
)

# With a list in focus, JupyterLab takes plain keys for its own: an arrow leaves the list, "d" twice deletes the cell. So a
# widget keeps them, all but Escape, Shift-Enter and what comes with Ctrl, Alt or Cmd. The handle of a slider has no name.
_SCRIPT = """
(page => {
  const keep = event => {
    const theirs = event.ctrlKey || event.altKey || event.metaKey || event.key === "Escape";
    if (!theirs && !(event.shiftKey && event.key === "Enter")) event.stopPropagation();
  };
  const prepare = widget => {
    if (widget.dataset.keys) return;
    widget.dataset.keys = "kept";
    widget.addEventListener("keydown", keep);
    for (const slider of widget.querySelectorAll(".widget-slider"))
      for (const part of slider.querySelectorAll(".noUi-handle, .widget-readout"))
        part.setAttribute("aria-label", slider.querySelector("label").textContent);
  };
  const inside = event => { const widget = event.target.closest("HERE"); if (widget) prepare(widget); };
  if (!page.kvcourse) page.addEventListener("focusin", inside);  // a widget may come after this line
  page.kvcourse = true;
  page.querySelectorAll("HERE").forEach(prepare);
})(document);
"""


def page_rules() -> str:
    """The rules and the script, as HTML: in it once for every widget, in effect once for every page."""
    script = " ".join(line.split("  //")[0].strip() for line in _SCRIPT.strip().split("\n"))
    return f'<style class="{LIVE}-rules">{RULES}</style><script>{script.replace("HERE", f".{LIVE}")}</script>'
