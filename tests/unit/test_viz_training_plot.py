"""The live curve: what it notes, how often it draws, what stands in the picture, and what is left in a notebook."""

import base64
from dataclasses import dataclass, field

import nbformat
import pytest
from nbclient import NotebookClient

from kvcourse.errors import InputError
from kvcourse.viz import style, training_plot
from kvcourse.viz.training_plot import LiveCurve, steepest_rise


@dataclass
class Step:
    step: int
    loss: float = 1.0
    stage: int = 0
    recalls: list[tuple[int, float]] = field(default_factory=list)


class Screen:
    """Where a notebook would be. Each drawing takes `cost` seconds of the clock."""

    is_there = True

    def __init__(self, cost: float = 0.0) -> None:
        self.now, self.cost, self.shown, self.last = 0.0, cost, 0, 0

    def show(self, fig, last: bool = False) -> None:
        self.now += self.cost
        self.shown += 1
        self.last += last


def curve_on(screen: Screen) -> LiveCurve:
    curve = LiveCurve(steps=2000, chance=0.1, clock=lambda: screen.now)
    curve._screen = screen
    return curve


def trained(screen: Screen, *, steps: int, step_s: float) -> LiveCurve:
    progress = Step(0)  # one object that goes on changing, as training's does
    with curve_on(screen) as curve:
        for step in range(1, steps + 1):
            screen.now += step_s
            progress.step, progress.loss = step, 4 / step
            if step % 10 == 0:
                progress.recalls.append((step, step / steps))
            curve(progress)
    return curve


def test_it_notes_every_loss_and_the_recalls_that_were_measured():
    curve = trained(Screen(), steps=30, step_s=0.1)
    assert curve.losses[:2] == [(1, 4.0), (2, 2.0)] and len(curve.losses) == 30
    assert curve.recalls == [(10, 1 / 3), (20, 2 / 3), (30, 1.0)]


@pytest.mark.parametrize("cost", [0.01, 0.2, 1.0])
def test_drawing_takes_a_small_share_of_the_time_however_long_it_takes(cost):
    screen = Screen(cost)
    trained(screen, steps=2000, step_s=0.05)
    assert 5 < screen.shown <= screen.now / training_plot.SHORTEST_S + 2
    assert screen.shown * cost <= 1.2 * training_plot.SHARE * screen.now


def test_the_last_figure_is_drawn_once_more_and_finely():
    screen = Screen()
    trained(screen, steps=10, step_s=0.001)
    assert (screen.shown, screen.last) == (2, 1)


def test_an_interrupted_training_leaves_its_curve():
    screen = Screen()
    with pytest.raises(KeyboardInterrupt), curve_on(screen) as curve:
        curve(Step(1))
        raise KeyboardInterrupt
    assert screen.last == 1


def test_a_training_that_fails_before_its_first_step_shows_its_own_error():
    with pytest.raises(ZeroDivisionError), curve_on(Screen()):
        raise ZeroDivisionError


def test_outside_a_notebook_nothing_is_drawn(monkeypatch):
    monkeypatch.setattr(LiveCurve, "draw", lambda self: pytest.fail("it was drawn"))
    with LiveCurve(steps=9, chance=0.1) as curve:
        curve(Step(1))


def test_the_axis_of_steps_has_its_full_length_from_the_start():
    curve = LiveCurve(steps=400, chance=0.1)
    curve(Step(3))
    top, bottom = curve.draw().axes
    assert top.get_xlim() == bottom.get_xlim() == (0.0, 400.0)
    assert top.get_ylim()[0] == 0 and bottom.get_ylim()[0] == 0  # nothing is made to look steeper than it is


def test_chance_is_a_line_with_its_name_on_it():
    curve = LiveCurve(steps=9, chance=0.125)
    curve(Step(1))
    _, bottom = curve.draw().axes
    assert list(bottom.lines[0].get_ydata()) == [0.125, 0.125]
    assert [text.get_text() for text in bottom.texts] == ["chance 12% "]


def test_recall_is_drawn_where_it_was_measured_and_its_last_value_is_written():
    curve = trained(Screen(), steps=40, step_s=0.1)
    _, bottom = curve.draw().axes
    assert bottom.lines[1].get_xdata().tolist() == [10, 20, 30, 40]
    assert bottom.lines[1].get_ydata().tolist() == [0.25, 0.5, 0.75, 1.0]
    assert bottom.texts[-1].get_text() == "100%"


def test_the_dark_line_is_the_mean_of_the_last_losses():
    losses = [(step, float(step)) for step in range(1, 101)]
    smooth = training_plot._smooth(losses)
    assert smooth[0] == 1.0 and smooth[1] == 1.5
    last = range(100 - training_plot.SMOOTH + 1, 101)
    assert smooth[-1] == pytest.approx(sum(last) / len(last))


def test_a_training_that_needed_fewer_steps_fills_the_whole_axis():
    curve = trained(Screen(), steps=40, step_s=0.1)
    assert curve.draw().axes[0].get_xlim() == (0.0, 40.0)
    assert "step 40 of 40" in curve.draw().axes[0].get_title(loc="left")


def test_each_stage_begins_at_a_dotted_line_in_both_panels_that_says_which_it_is():
    curve = LiveCurve(steps=100, chance=0.1)
    for step, stage in ((1, 0), (20, 1), (21, 1), (60, 2), (64, 3), (70, 3)):
        curve(Step(step, stage=stage))
    assert curve.stages == [(20, 1), (60, 2), (64, 3)]
    top, bottom = curve.draw().axes
    for ax in (top, bottom):
        upright = [line for line in ax.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2]
        assert [line.get_xdata()[0] for line in upright] == [20, 60, 64]
        assert {line.get_linestyle() for line in upright} == {":"}
    assert [(text.get_text(), text.xy[0]) for text in top.texts] == [("stage 2", 20), ("3", 60), ("stage 4", 64)]
    assert "stage 2 after step 20, 3 after step 60, 4 after step 64;" in training_plot._in_words(curve.draw())


def test_training_in_one_stage_has_no_line_of_stages():
    curve = trained(Screen(), steps=40, step_s=0.1)
    assert curve.stages == [] and not curve.draw().axes[0].texts
    assert "stage" not in training_plot._in_words(curve.draw())


def test_the_loss_says_that_it_is_the_weighted_one():
    curve = LiveCurve(steps=9, chance=0.1)
    curve(Step(1))
    assert curve.draw().axes[0].get_ylabel().split() == ["training", "loss,", "weighted", "(nats)"]


def test_the_words_say_what_the_picture_shows():
    curve = trained(Screen(), steps=40, step_s=0.1)
    words = training_plot._in_words(curve.draw())
    assert "step 40 of 40" in words and "100%" in words and "chance 10%" in words


def test_the_steepest_rise_is_between_two_measurements():
    assert steepest_rise([(0, 0.1), (10, 0.12), (20, 0.5), (30, 0.6)]) == (10, 20)
    with pytest.raises(InputError, match="No rise yet"):
        steepest_rise([(0, 0.1)])


@pytest.mark.parametrize("chance", [-0.1, 1.5, float("nan")])
def test_chance_must_be_a_share(chance):
    with pytest.raises(InputError, match="Chance is a share"):
        LiveCurve(steps=9, chance=chance)


def test_a_curve_without_steps_cannot_be_drawn():
    with pytest.raises(InputError, match="Nothing to draw"):
        LiveCurve(steps=9, chance=0.1).draw()


CELL = """
from types import SimpleNamespace
from kvcourse.viz.training_plot import LiveCurve

now = 0.0
with LiveCurve(steps=9, chance=0.1, clock=lambda: now) as curve:
    for step in range(1, 6):
        now += 1.0
        curve(SimpleNamespace(step=step, loss=1 / step, stage=0, recalls=[(1, 0.5)]))
"""


def test_a_notebook_is_updated_while_it_runs_and_keeps_one_figure():
    updates = []

    class Watched(NotebookClient):
        def process_message(self, msg, cell, cell_index):
            updates.append(msg["msg_type"])
            return super().process_message(msg, cell, cell_index)

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    Watched(notebook, kernel_name="python3", timeout=120).execute()
    assert (updates.count("display_data"), updates.count("update_display_data")) == (1, 5)
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data" and "step 5 of 5" in output.data["text/plain"]
    width = int.from_bytes(base64.b64decode(output.data["image/png"])[16:20])
    assert width == 2 * output.metadata["image/png"]["width"] == 2 * 7.2 * style.DPI
