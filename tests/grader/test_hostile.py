"""No hostile or unlucky submission earns credit it does not deserve, or loses the credit of its other exercises."""

import json

import corpus
import psutil
import pytest

from kvcourse.errors import SubmissionError
from kvcourse.grader.submission import read_submission

POINTS = {name: task.points for name, task in corpus.TASKS.items()}


@pytest.fixture
def hand_in(tmp_path):
    """The edited notebook as a file, in a folder of its own."""

    def write(entry: corpus.Entry):
        notebook = corpus.solved()
        entry.edit(notebook, tmp_path)
        path = tmp_path / "06_kv_cache.ipynb"
        path.write_text(notebook.get("raw", json.dumps(notebook)), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("entry", corpus.CORPUS, ids=lambda entry: entry.name)
def test_a_submission_gets_what_it_deserves(entry, hand_in, sealed, monkeypatch):
    path = hand_in(entry)
    monkeypatch.chdir(path.parent)  # the worst place to grade from
    if entry.refused:
        with pytest.raises(SubmissionError):
            read_submission(path)
        return
    handed_in = read_submission(path)
    results = {one.name: one for one in sealed.grade(handed_in.exercise.file, handed_in.answers, handed_in.extra)}
    got = {name: result.points for name, result in results.items()}
    assert got == {name: 0 if name in entry.lost else points for name, points in POINTS.items()}, results
    for name in entry.lost[:1]:
        assert entry.says in results[name].message
        assert "\n" not in results[name].message and len(results[name].message) < 600


def test_the_corpus_has_at_least_forty_entries_with_different_names():
    assert len({entry.name for entry in corpus.CORPUS}) == len(corpus.CORPUS) >= 40


def test_after_all_of_them_the_judge_is_there_and_no_process_is_left(sealed):
    """Runs after the corpus, in this file's order. bubblewrap's two processes and the zygote are all that may live."""
    sealed.grade("06", {"6.3": corpus.text(corpus.answer(corpus.solved(), "6.3"))}, [])
    judge = sealed._judge._process
    assert judge.poll() is None
    names = [one.name() for one in psutil.Process(judge.pid).children(recursive=True)]
    assert len(names) == 3 and names.count("bwrap") == 2, names
