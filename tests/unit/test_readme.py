"""What the README shows is what happens: its Python blocks run, on the real model, and print what stands below them."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL)


def test_the_examples_print_what_the_readme_says():
    assert len(EXAMPLES) == 2
    names: dict = {}
    for code, printed in EXAMPLES:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(code, "README.md", "exec"), names)
        assert shown.getvalue() == printed


def test_the_chat_s_answer_is_the_one_the_readme_shows():
    """Greedy, so the words and the counts are the same everywhere; the times are not."""
    from kvcourse.checkpoints import load_model
    from kvcourse.sessions.session import Session

    question, answer, usage = re.search(r'\$ kvcourse chat "(.*?)"\n(.*?)\n(usage: .*? tokens) · first', README).groups()
    now = Session(load_model("smollm2")).send(question, max_new_tokens=256)
    assert now.text == answer
    assert now.summary().startswith(usage)


def test_the_check_shown_counts_the_properties_there_are():
    from kvcourse.checks.registry import find_task, properties_of

    shown = re.search(r"# (6\.2) mask: (\d+)/(\d+)", README)
    count = str(len(properties_of(find_task(shown[1])[1])))
    assert shown.groups()[1:] == (count, count)
