"""Origin of public files, for the columns of results."""

import hashlib
import re
from pathlib import Path


def source_of(file: Path) -> dict[str, str]:
    """Return folder and name of a file, its licence and checksum.

    The licence is that of a line ``LICENCE ...`` in ``README.txt`` beside the file.
    """
    readme = file.parent / "README.txt"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    licence = re.search(r"^LICENCE\s+(?:code )?([\w.-]+)", text, re.MULTILINE)
    return {
        "source": f"{file.resolve().parent.name}/{file.name}",
        "licence": licence[1] if licence else "",
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
