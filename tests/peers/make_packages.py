"""Makes the packages of the small indexes into FOLDER: a wheel, an npm package and a scoped npm package."""

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

folder = Path(sys.argv[1])


def wheel(name, version):
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: exeat-tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


def npm(name, version):
    files = {
        "package/package.json": json.dumps({"name": name, "version": version, "main": "index.js"}),
        "package/index.js": f"module.exports = {version!r};\n",
    }
    with tarfile.open(folder / f"{name.split('/')[-1]}-{version}.tgz", "w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


wheel("exeat_sample", "1.0")
npm("exeat-sample", "1.0.0")
npm("@exeat/scoped", "1.0.0")
