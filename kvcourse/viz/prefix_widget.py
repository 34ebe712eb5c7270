"""Lesson 10: a prefix tree to step through, and to play with. Knows nothing about how it is kept or drawn."""

import html
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from kvcourse.errors import KVCourseError
from kvcourse.viz import widgets
from kvcourse.viz.frames import Frames, quick_png
from kvcourse.viz.prefix_story import TENANTS, Step, Story, first_story, told
from kvcourse.viz.prefix_tree import plot_trees

NOTE = "Run this cell in JupyterLab to step through it, and to try texts of your own."
SHOWN = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12)  # steps of the first story that the static figure shows
WIDTH, STEP_WIDTH = 9.0, 7.6  # inches, of the static figure and of a single step
FIRST = "in short what is hail ?"


def prefix_explorer(*, static: bool = False) -> widgets.Live | Figure:
    """Watch a radix tree while texts are looked up, stored, leased and evicted; then go on with texts of your own.

    static: only the figure, which is also what stays where no widget can run.
    """
    story = first_story()
    if static:
        return _overview(story)
    return widgets.Live(_Controls(first_story()).widget, lambda: _overview(story), told(story.steps), NOTE)


def _overview(story: Story) -> Figure:
    panels = {_title(number, story.steps[number]): story.steps[number].panel for number in SHOWN}
    return plot_trees(panels, columns=2, width=WIDTH)


def _title(number: int, step: Step) -> str:
    return f"{number}  {step.title}"


class _Controls:
    """The steps so far under a slider, and the calls that add to them. Each works on the tree as it is after the last step."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.frames = Frames(lambda step, count: quick_png(self.draw(step)))
        self.words, self.picture = widgets.spoken(), widgets.image()
        self.bar = widgets.steps("step", len(story.steps) - 1, "Step: arrow keys move it", self.show)
        self.slider = self.bar[-1]
        self.whose = widgets.choice(
            "whose", [(name, name) for name in TENANTS], "The namespace: whose text it is", "11em", _nothing
        )
        self.text = widgets.field("text", FIRST, "A few words, with spaces between them", "20em")
        calls = {
            "match": ("Look how much of the text is known", lambda: story.match(self.text.value, self.whose.value)),
            "insert": ("Store the text", lambda: story.insert(self.text.value, self.whose.value)),
            "lease": ("Pin what is known of the text", lambda: story.lease(self.text.value, self.whose.value)),
            "release": ("End the oldest lease", story.release),
            "evict": ("Remove the leaf that is worth least", story.evict),
        }
        self.buttons = {name: widgets.button(name, tip, self._calling(call)) for name, (tip, call) in calls.items()}
        rows = [widgets.row(*self.bar), widgets.row(self.whose, self.text, *self.buttons.values())]
        self.widget = widgets.column(*rows, self.words, self.picture)
        self.show()

    def draw(self, number: int) -> Figure:
        step = self.story.steps[number]
        return plot_trees({_title(number, step): step.panel}, like=[one.panel for one in self.story.steps], width=STEP_WIDTH)

    def show(self, _: dict[str, Any] | None = None) -> None:
        number, count = self.slider.value, len(self.story.steps)
        self.picture.value = self.frames[number, count]  # a wider word changes every picture
        self._say(self.story.steps[number].spoken, "status")
        self.frames.ahead([(one, count) for one in range(number + 1, count)])

    def _calling(self, call: Callable[[], object]) -> Callable[[], None]:
        def pressed() -> None:
            try:
                call()
            except KVCourseError as error:  # an exception in here would be seen by nobody
                self._say(str(error), "alert")
                return
            self.slider.max = len(self.story.steps) - 1
            self.slider.value = self.slider.max  # and so it is shown

        return pressed

    def _say(self, words: str, role: str) -> None:
        how = widgets.FOR_READERS if role == "status" else "color:#B3261E"
        self.words.value = f'<span role="{role}" aria-live="polite" style="{how}">{html.escape(words)}</span>'


def _nothing(_: object) -> None:
    """Whose text it is matters when a button is pressed."""
