"""A notebook that was opened and only read has nothing to save: no dot in its tab, no question when it is closed."""

import pytest
from jupyter_lab import Lab
from notebook_page import NotebookPage
from playwright.sync_api import Browser

OPENED = ("notebooks/06_kv_cache.ipynb", "exercises/06_kv_cache.ipynb", "work/06_kv_cache.ipynb")


@pytest.mark.xdist_group("untouched")
@pytest.mark.parametrize("path", OPENED)
def test_a_notebook_that_was_only_opened_is_not_changed_and_closes_without_a_question(
    browser: Browser, lab: Lab, path: str
) -> None:
    before = (lab.course / path).read_bytes()
    notebook = NotebookPage(browser, lab, path)
    try:
        notebook.page.evaluate("async () => { await kv.kernel().info; }")  # the kernel has said which Python it is
        notebook.settle()
        metadata = notebook.page.evaluate("() => kv.panel().context.model.sharedModel.metadata")
        assert "version" in metadata["language_info"]
        assert not notebook.page.evaluate("() => kv.panel().context.model.dirty")
        notebook.menu("File", "Close Tab")
        notebook.wait("path => ![...jupyterapp.shell.widgets('main')].some(tab => tab.context?.path === path)", path)
        assert notebook.page.locator(".jp-Dialog").count() == 0
    finally:
        notebook.close()
    assert (lab.course / path).read_bytes() == before
