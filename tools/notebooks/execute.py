"""Maintainers only: runs a notebook's cells in a fresh kernel. Knows nothing about files or digests.

The kernel is the interpreter that runs the builder, whatever kernels a user has installed, and reads no personal
IPython start-up file. It works in the folder where the notebook will live, as JupyterLab and nbval do.
"""

import copy
import os
import re
import tempfile
from pathlib import Path
from typing import BinaryIO

import ipykernel.kernelspec
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from tools.notebooks.outputs import faults, tidy, widget_fault
from tools.notebooks.source import BuildError, Source

TIMEOUT_S = 600  # for one cell; a whole lesson takes less than two minutes
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class _ThisPython(KernelSpecManager):
    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(resource_dir=ipykernel.kernelspec.RESOURCES, **ipykernel.kernelspec.get_kernel_dict())


class _Kernel(AsyncKernelManager):
    def _kernel_spec_manager_default(self) -> KernelSpecManager:
        return _ThisPython(parent=self)


def execute(source: Source, template: NotebookNode, working_folder: Path, timeout_s: int = TIMEOUT_S) -> NotebookNode:
    """A copy of the template with outputs and counts. Raises BuildError naming the cell, with its traceback."""
    notebook = copy.deepcopy(template)
    client = NotebookClient(
        notebook,
        timeout=timeout_s,
        kernel_manager_class=_Kernel,
        resources={"metadata": {"path": str(working_folder)}},
        record_timing=False,
        store_widget_state=False,
    )
    with tempfile.TemporaryDirectory() as folder, open(Path(folder, "stderr"), "w+b") as stderr:
        with client.setup_kernel(env={**os.environ, "IPYTHONDIR": folder}, stderr=stderr):
            for index, cell in enumerate(notebook.cells):
                if cell.cell_type == "code":
                    _run(client, source, index, cell, stderr)
    executed = copy.deepcopy(template)  # nothing but counts and outputs comes back: no timing, no widget state
    count = 0
    for index, (cell, ran) in enumerate(zip(executed.cells, notebook.cells, strict=True)):
        if cell.cell_type == "code":
            count += 1
            cell.execution_count, cell.outputs = count, ran.outputs
            _finish(source, index, cell)
    return executed


def _run(client: NotebookClient, source: Source, index: int, cell: NotebookNode, stderr: BinaryIO) -> None:
    try:
        client.execute_cell(cell, index)
    except CellExecutionError as error:
        raise BuildError(f"{source.where(index)}: {error.ename}\n{_ANSI.sub('', error.traceback)}") from error
    except CellTimeoutError as error:
        raise BuildError(f"{source.where(index)}: still running after {client.timeout} s.") from error
    except DeadKernelError as error:
        stderr.seek(0)
        last_words = "".join(stderr.read().decode(errors="replace").splitlines(keepends=True)[-20:])
        raise BuildError(f"{source.where(index)}: the kernel died.\n{last_words}") from error


def _finish(source: Source, index: int, cell: NotebookNode) -> None:
    tags = cell.metadata.get("tags", [])
    fault = widget_fault(cell)
    tidy(cell)
    for output in cell.outputs:
        if output.output_type == "execute_result":
            output.execution_count = cell.execution_count
    if "raises-exception" in tags and not any(output.output_type == "error" for output in cell.outputs):
        fault = "tagged raises-exception, and raised none."
    if "check" in tags and not cell.outputs:
        fault = "a check that prints nothing has no reference output."
    fault = fault or next(faults(cell, source.root, fresh=True), None)
    if fault:
        raise BuildError(f"{source.where(index)}: {fault}")
