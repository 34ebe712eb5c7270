"""Every lesson: what Jupyter's server is told when `kvcourse lab` starts it. Knows nothing about notebooks."""

from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_config_dir

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821 (Jupyter brings it)
styles = [str(folder / "custom") for folder in (Path(jupyter_config_dir()), Path(__file__).parent)]  # one's own goes first
c.LabApp.custom_css = True
c.ServerApp.tornado_settings.update({"static_custom_path": styles})
