"""Lesson 07: a GGUF file's weights at another precision, for llama.cpp. Knows nothing about engines.

The 4-bit numbers are written out as float32 or float16; float32 is exactly what `kvcourse fetch` converts, so engines that
read either compute with the same weights. Norms stay float32, as llama.cpp's own converter leaves them.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np


@contextmanager
def in_precision(folder: Path, precision: str) -> Iterator[Path]:
    """The path of the folder's GGUF file, as it is ("4-bit") or written out; the copy is gone at the end of the block."""
    (file,) = folder.glob("*.gguf")
    if precision == "4-bit":
        yield file
        return
    with tempfile.TemporaryDirectory() as place:
        new = Path(place) / f"{precision}.gguf"
        write_out(file, new, np.float16 if precision == "float16" else np.float32)
        yield new


def write_out(source: Path, target: Path, dtype: type[np.generic]) -> None:
    """Copy a GGUF file with every matrix as `dtype`."""
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue  # the writer's own
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if dtype is np.float16 else gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))  # the format writes the fastest axis first
        values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        writer.add_tensor(tensor.name, values.astype(dtype if len(shape) > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
