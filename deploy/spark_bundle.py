"""Packs the parts of this project that Spark's workers need into one archive for
`spark-submit --archives`: our packages, the compiled modules, and those of our dependencies that
the jobs import.

Packages that workers have anyway (Python itself, pyspark, pyarrow, pandas, numpy) are left out.
Compiled files and wheels fit only this machine's processor type and Python version.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from runtime import compiled
from runtime.process import OperationalFailure

OWN: Final = ("clients", "runtime", "spark_jobs", "wire", "pyspark_antipode.py")
AT_WORKERS: Final = frozenset({"pyspark", "pyarrow", "numpy", "pandas", "py4j", "dateutil", "pytz", "six", "tzdata"})
AWS_SERVICES: Final = "botocore/data/"
AWS_SERVICES_USED: Final = tuple(AWS_SERVICES + name for name in ("s3", "sso", "sts"))
"""AWS's client describes four hundred services in folders (28 MB): the others are left out."""
_LISTING: Final = """
import json, sys
import pyspark_antipode, spark_jobs.reconcile, spark_jobs.archive, spark_jobs.archiving.restore, spark_jobs.pipelines.log_documents
import confluent_kafka, spark_jobs.pipelines.road_ingest
from spark_jobs.archiving import hdfs_directory, s3_directory
from wire.protocol import schemas
import kio.schema
found = {}
for name, module in list(sys.modules.items()):
    origin = getattr(module, "__file__", None)
    if origin and "site-packages" in origin:
        top = name.partition(".")[0]
        found[top] = getattr(sys.modules.get(top), "__file__", None) or origin
print(json.dumps(found))
"""


def pack(out: Path) -> list[str]:
    """Write the archive; return the names of the packages in it. Raises OperationalFailure when the
    jobs cannot be imported here.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _LISTING], capture_output=True, text=True, check=False, cwd=compiled.ROOT
    )
    if ended.returncode != 0:
        raise OperationalFailure(f"the jobs cannot be imported: {ended.stderr.strip().splitlines()[-1]}")
    imported = {name: Path(file) for name, file in json.loads(ended.stdout).items()}
    found = {name: file for name, file in imported.items() if name not in AT_WORKERS and not name.startswith("_")}
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f"{out.name}.partial")
    with tarfile.open(partial, "w:gz", compresslevel=1) as archive:
        _add(archive, (compiled.ROOT / name for name in OWN), compiled.ROOT)
        if compiled.directory().is_dir():
            # the folder is found by the sources of all compiled modules, also those of brokers
            sources = (compiled.source(name) for name in compiled.MODULES if name.partition(".")[0] not in OWN)
            _add(archive, sources, compiled.ROOT)
            archive.add(compiled.directory(), arcname=f".parts/compiled/{compiled.directory().name}")
        for name, file in sorted(found.items()):
            place = file.parent if file.name.startswith("__init__.") else file
            archive.add(place, arcname=place.name, filter=_without_caches)
            _add_libraries(archive, name, file)
    partial.rename(out)
    return [*OWN, *sorted(found)]


def _add(archive: tarfile.TarFile, places: Iterable[Path], root: Path) -> None:
    for place in places:
        archive.add(place, arcname=str(place.relative_to(root)), filter=_without_caches)


def _add_libraries(archive: tarfile.TarFile, name: str, file: Path) -> None:
    """The shared libraries and metadata that wheels keep beside their package."""
    site = file.parent.parent if file.name.startswith("__init__.") else file.parent
    for beside in (*site.glob(f"{name}.libs"), *site.glob(f"{name.replace('-', '_')}-*.dist-info")):
        archive.add(beside, arcname=beside.name, filter=_without_caches)


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    is_service = entry.isdir() and entry.name.startswith(AWS_SERVICES)
    is_unused = is_service and not entry.name.startswith(AWS_SERVICES_USED)
    return None if "__pycache__" in entry.name or is_unused else entry


def main() -> None:
    """The program behind `make spark-bundle`."""
    parser = argparse.ArgumentParser(description="Pack what Spark's workers need of Antipode into one archive.")
    parser.add_argument("--out", type=Path, default=Path("out/spark/antipode.tar.gz"), help="the archive")
    given = parser.parse_args()
    try:
        names = pack(given.out)
    except OperationalFailure as failure:
        sys.exit(f"error: {failure}")
    size_mb = given.out.stat().st_size / 1e6
    print(f"{given.out}: {size_mb:.0f} MB with {', '.join(names)}")
    print(
        f"spark-submit --archives {given.out}#antipode --conf spark.executorEnv.PYTHONPATH=antipode "
        "spark_jobs/reconcile.py ..."
    )


if __name__ == "__main__":
    main()
