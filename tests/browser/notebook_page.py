"""One notebook in one page. What a person does is done with mouse and keyboard; what a person waits for is asked from the page.

Waits are for conditions: the kernel's connection, an answer for each cell that was sent, a picture that has arrived. The word
Idle says nothing: a kernel that has not been asked yet is idle, too.
"""

import re
from pathlib import Path
from typing import Any

from jupyter_lab import Lab
from playwright.sync_api import Browser, Locator, Page

PATIENCE_MS = 600_000  # for a lesson's cells; no claim about time
SOON_MS = 120_000  # for everything else, on a machine that does much else
_HELPERS = """
window.kv = {
  answers: [],
  pending: new Set(),  // what widgets have sent and the kernel has not finished with
  panel: () => window.jupyterapp?.shell.currentWidget,
  // A notebook that takes the place of another does not always get the focus: it is looked for among all that are open.
  isReady: path => [...window.jupyterapp?.shell.widgets("main") ?? []].some(tab => tab.context?.path === path
    && tab.context.isReady && tab.content.widgets.length
    && tab.sessionContext.session?.kernel?.connectionStatus === "connected"),
  kernel: () => kv.panel()?.sessionContext?.session?.kernel,
  cells: () => kv.panel().content.widgets,
  code: () => kv.cells().filter(cell => cell.model.type === "code" && cell.model.sharedModel.source.trim()),
  listen: () => {
    const kernel = kv.kernel();
    if (kv.heard === kernel) return;
    kv.heard = kernel;
    kernel.anyMessage.connect((_, {msg, direction}) => {
      const {msg_type, msg_id} = msg.header;
      if (msg_type === "execute_reply") kv.answers.push(msg.parent_header.msg_id);
      if (msg_type === "comm_msg" && direction === "send") kv.pending.add(msg_id);
      if (msg_type === "status" && msg.content.execution_state === "idle") kv.pending.delete(msg.parent_header.msg_id);
    });
  },
  outputs: cell => cell.model.outputs.toJSON(),
  isExpected: cell => (cell.model.getMetadata("tags") || []).includes("raises-exception"),
  failed: () => kv.code().filter(cell => !kv.isExpected(cell))
    .flatMap(cell => kv.outputs(cell).filter(out => out.output_type === "error")
      .map(out => `${cell.model.id}: ${out.ename}: ${out.evalue}`)),
  find: id => kv.cells().findIndex(cell => cell.model.id === id),
  show: async index => {
    const notebook = kv.panel().content;
    notebook.deselectAll();
    notebook.activeCellIndex = index;
    await notebook.scrollToItem(index, "start");
  },
};
"""


class NotebookPage:
    """A page with a notebook in it, and a kernel that answers unless `kernel` is False."""

    def __init__(self, browser: Browser, lab: Lab, path: str, *, width: int = 1280, height: int = 800) -> None:
        self.lab, self.path = lab, path
        self.faults: list[str] = []  # exceptions that nobody caught in the page
        self.context = browser.new_context(viewport={"width": width, "height": height})
        self.context.set_default_timeout(SOON_MS)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page: Page = self.context.new_page()
        self.page.add_init_script(_HELPERS)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        NotebookPage.opened += 1
        self.page.goto(lab.address(path, f"test-{NotebookPage.opened}"))
        self.wait("path => kv.isReady(path) && kv.panel()?.context?.path === path", path)
        self.page.evaluate("kv.listen()")

    opened = 0  # pages so far: each has a workspace of its own

    def wait(self, condition: str, argument: Any = None, patience_ms: int = SOON_MS) -> None:
        self.page.wait_for_function(condition, arg=argument, timeout=patience_ms)

    def settle(self) -> None:
        """Until nothing is left that widgets have sent, and all that came back has been taken in and drawn."""
        self.wait("() => kv.pending.size === 0")
        self.page.evaluate("() => kv.kernel().requestExecute({code: '', silent: true, store_history: false}).done")
        self.wait("() => kv.pending.size === 0")
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def menu(self, *names: str) -> None:
        """Choose from JupyterLab's menu with the mouse: menu("Run", "Run All Cells")."""
        for name in names:
            self.page.get_by_role("menuitem", name=re.compile(rf"^{re.escape(name)}")).first.click()

    def run_all(self) -> None:
        """Run All Cells, until the kernel has answered for each of them, or one has failed."""
        self.page.evaluate("kv.listen(); kv.answers = []")
        self.menu("Run", "Run All Cells")
        self.wait("() => kv.answers.length >= kv.code().length || kv.failed().length", patience_ms=PATIENCE_MS)
        self.settle()  # an answer that has arrived is not in its cell yet

    def run_cell(self, cell_id: str) -> None:
        """Put the cursor into a cell, press Shift and Enter, and wait for the kernel's answer."""
        self.editor(cell_id).click()
        self.page.evaluate("kv.listen(); kv.answers = []")
        self.page.keyboard.press("Shift+Enter")
        self.wait("() => kv.answers.length > 0", patience_ms=PATIENCE_MS)
        self.settle()

    def show(self, cell_id: str) -> Locator:
        """Scroll to a cell and make it the active one. Returns it."""
        index = self.page.evaluate("id => kv.find(id)", cell_id)
        assert index >= 0, f"{self.path} has no cell {cell_id!r}"
        self.page.evaluate("index => kv.show(index)", index)
        cell = self.page.locator(f'.jp-Cell[data-windowed-list-index="{index}"]')
        cell.scroll_into_view_if_needed()
        return cell

    def editor(self, cell_id: str) -> Locator:
        return self.show(cell_id).locator(".jp-InputArea .cm-content")

    def write(self, cell_id: str, source: str) -> None:
        """Paste a text in the place of a cell's."""
        self.editor(cell_id).click()
        self.page.evaluate("text => navigator.clipboard.writeText(text)", source)
        self.page.keyboard.press("ControlOrMeta+A")
        self.page.keyboard.press("ControlOrMeta+V")
        self.wait("([id, text]) => kv.cells()[kv.find(id)].model.sharedModel.source === text", [cell_id, source])

    def shown(self, cell_id: str) -> str:
        """What a reader sees under a cell, on one line."""
        return " ".join(self.show(cell_id).locator(".jp-OutputArea").inner_text().split())

    def errors(self, cell_id: str) -> int:
        """Outputs of a cell that JupyterLab shows as errors, on red."""
        return self.show(cell_id).locator('[data-mime-type="application/vnd.jupyter.stderr"], .jp-mod-error').count()

    def save(self) -> None:
        self.page.keyboard.press("ControlOrMeta+S")
        self.wait("() => !kv.panel().context.model.dirty")

    def save_copy(self, path: str) -> None:
        """Save Notebook As, as a learner does with a lesson: JupyterLab opens the copy, and asks what to do with the lesson."""
        self.menu("File", "Save Notebook As")
        dialog = self.page.locator(".jp-Dialog")
        dialog.get_by_role("textbox").fill(path)
        dialog.get_by_role("button", name="Save").click()
        dialog.get_by_role("textbox").wait_for(state="detached")
        self._agree("Discard")
        self.wait("path => kv.isReady(path)", path)

    def restart(self) -> None:
        """What was there before knows it when its widgets are disconnected: that is waited for where it is looked at."""
        self.menu("Kernel", "Restart Kernel")
        self._agree("Restart")

    def shut_down(self) -> None:
        self.menu("Kernel", "Shut Down Kernel")
        self.wait("() => !kv.kernel()")

    def _agree(self, label: str) -> None:
        """Press a button of JupyterLab's question."""
        self.page.locator(".jp-Dialog button", has_text=re.compile(f"^{label}$")).click()
        self.page.locator(".jp-Dialog").wait_for(state="detached")

    def resize(self, width: int, height: int) -> None:
        """A small window has no room for the list of files: it is closed, as one would."""
        self.page.set_viewport_size({"width": width, "height": height})
        small = width < 1000
        self.page.evaluate("small => small ? jupyterapp.shell.collapseLeft() : jupyterapp.shell.expandLeft()", small)
        self.wait("width => document.documentElement.clientWidth === width", width)

    def picture(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=folder / f"{name}.png")

    def close(self) -> None:
        self.context.close()
        self.lab.stop_kernels()
