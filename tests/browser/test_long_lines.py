"""Long lines of outputs, errors above all, are broken between words and not within a word or a number."""

import pytest
from jupyter_lab import Lab
from notebook_page import NotebookPage
from playwright.sync_api import Browser

# Where each line of an output begins: words whose first and last letter do not stand at the same height were broken.
BROKEN = """cell => [...cell.querySelectorAll(".jp-OutputArea-output pre")].flatMap(pre => {
  const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT), range = document.createRange(), broken = [];
  while (walker.nextNode())
    for (const word of walker.currentNode.data.matchAll(/[\\w.,]+/g)) {
      const tops = [0, word[0].length - 1].map(at => {
        range.setStart(walker.currentNode, word.index + at);
        range.setEnd(walker.currentNode, word.index + at + 1);
        return range.getBoundingClientRect().top;
      });
      if (tops[0] !== tops[1]) broken.push(word[0]);
    }
  return broken;
})"""


@pytest.mark.xdist_group("long lines")
def test_an_error_longer_than_the_page_is_broken_between_words(browser: Browser, lab: Lab) -> None:
    notebook = NotebookPage(browser, lab, "notebooks/08_smaller_cache.ipynb")
    try:
        for cell in ("refuse-truncate", "refuse-gpt"):
            shown = notebook.show(cell)
            pre = shown.locator(".jp-OutputArea-output pre").first
            assert pre.evaluate("pre => pre.clientHeight > 1.5 * parseFloat(getComputedStyle(pre).lineHeight)"), (
                "it is that long"
            )
            assert shown.evaluate(BROKEN) == []
    finally:
        notebook.close()
