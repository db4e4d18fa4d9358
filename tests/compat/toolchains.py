"""Other people's clients, fetched by their registries' own tools and built once into a cache folder.

Nothing of theirs is in this repository: Maven and Go download them, pinned, into ``TUBE_COMPAT_CACHE``
(``~/.cache/tube-compat``).  What cannot be had raises ``MissingError`` with the reason.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
JAVA_NEW: Final = "1.13.0"
"""The newest client in Maven Central."""
JAVA_OLD: Final = "1.5.0"
"""The oldest client there that comes with its parent and core."""
SERVER: Final = "2.4.0"
"""The newest server in Maven Central."""
GO_MODULE: Final = "github.com/apache/inlong/inlong-tubemq/tubemq-client-twins/tubemq-client-go"
GO_SOURCE: Final = "TUBE_COMPAT_GO_CLIENT"
"""Names a checkout of the Go client, for where the module proxy has none."""

BUILD_S: Final = 300


class MissingError(Exception):
    """A client cannot be had here."""


def cache() -> Path:
    """The folder of what was fetched and built."""
    folder = os.environ.get("TUBE_COMPAT_CACHE") or Path.home() / ".cache" / "tube-compat"
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)


def demand(*tools: str) -> None:
    """Refuse to go on when fetching is not wanted, or a tool is absent."""
    if not os.environ.get("TUBE_COMPAT"):
        raise MissingError("other people's programs are fetched only for `make compat`")
    for tool in tools:
        if shutil.which(tool) is None:
            raise MissingError(f"{tool} is not installed")


def server_classes() -> str:
    """The class path of Apache TubeMQ's servers: the server's own jar with the newest core of another version."""
    demand("java", "mvn")
    pom = HERE / "servers" / "pom.xml"
    folder = cache() / f"servers-{SERVER}-{_digest([pom])}"
    path_file = folder / "classpath"
    with _alone():
        if not _usable(path_file):
            folder.mkdir(parents=True, exist_ok=True)
            maven = ["mvn", "-q", "-B", "-f", str(pom)]
            jar = f"-Dartifact=org.apache.inlong:tubemq-server:{SERVER}:jar"
            _run("Maven", [*maven, "dependency:copy", jar, f"-DoutputDirectory={folder}"])
            _run("Maven", [*maven, "dependency:build-classpath", f"-Dmdep.outputFile={path_file}"])
    return f"{folder / f'tubemq-server-{SERVER}.jar'}{os.pathsep}{path_file.read_text()}"


def java_command(version: str) -> list[str]:
    """How to run the Java peer with a version of the client."""
    demand("java", "javac", "mvn")
    sources = sorted((HERE / "java").iterdir())
    folder = cache() / f"java-{version}-{_digest(sources)}"
    path_file = folder / "classpath"
    with _alone():
        if not _usable(path_file):
            _build_java(version, folder, path_file)
    classes = f"{folder}{os.pathsep}{HERE / 'java'}{os.pathsep}{path_file.read_text()}"
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return ["java", *options, "-cp", classes, "Peer"]


def go_command() -> list[str]:
    """How to run the Go peer."""
    demand("go")
    sources = sorted((HERE / "go").iterdir())
    given = os.environ.get(GO_SOURCE, "")
    folder = cache() / f"go-{_digest(sources, given)}"
    with _alone():
        if not (folder / "peer").exists():
            _build_go(sources, given, folder)
    return [str(folder / "peer")]


def _build_java(version: str, folder: Path, path_file: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _run(
        "Maven",
        [
            *("mvn", "-q", "-B", "-f", str(HERE / "java" / "pom.xml")),
            f"-Dtubemq.version={version}",
            "dependency:build-classpath",
            f"-Dmdep.outputFile={path_file}",
        ],
    )
    sources = [str(path) for path in (HERE / "java").glob("*.java")]
    classes = path_file.read_text()
    try:
        _run("javac", ["javac", "--release", "11", "-cp", classes, "-d", str(folder), *sources])
    except MissingError as error:  # our own programs do not compile: that is no reason to skip
        path_file.unlink()
        raise AssertionError(str(error)) from error


def _build_go(sources: Sequence[Path], given: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in sources:
        shutil.copy(path, folder)
    if given:
        _run("go", ["go", "mod", "edit", "-replace", f"{GO_MODULE}={given}"], folder)
    try:
        _run("the Go module proxy", ["go", "mod", "tidy"], folder)
    except MissingError as error:
        raise MissingError(f"{error}; {GO_SOURCE} may name a checkout of the client") from error
    try:
        _run("go", ["go", "build", "-o", "peer", "."], folder)
    except MissingError as error:
        raise AssertionError(str(error)) from error


def _usable(path_file: Path) -> bool:
    if not path_file.exists():
        return False
    return all(Path(jar).exists() for jar in path_file.read_text().split(os.pathsep))


def _digest(sources: Sequence[Path], *texts: str) -> str:
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()[:12]


def _run(what: str, command: Sequence[str], folder: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise MissingError(f"{what}: " + " | ".join(lines[:3])[:400])


@contextmanager
def _alone() -> Iterator[None]:
    """Workers of one test run build one after the other."""
    with (cache() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Fetch and build all clients; print the names of those that are there, and why others are not."""
    found = []
    for name, build in (
        ("java", lambda: [java_command(v) for v in (JAVA_NEW, JAVA_OLD)]),
        ("go", go_command),
    ):
        try:
            build()
            found.append(name)
        except (MissingError, AssertionError) as error:
            print(f"{name}: {error}", file=sys.stderr)
    print(",".join(found))


if __name__ == "__main__":
    main()
