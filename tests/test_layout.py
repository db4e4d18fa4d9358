"""The rules of the house (style 4 and 7), read from the source with plain ``ast``.

The tables come first; a change of the rules is a change of a table.
"""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

_FACTS = "tube.errors tube.limits tube.values"
_SERVER = (
    f"{_FACTS} tube.auth tube.config tube.net tube.pb tube.wire google prometheus_client twisted"
)

MAY_IMPORT = {
    "tube.errors": "",
    "tube.limits": "",
    "tube.values": "",
    "tube.config": "tube.errors tube.values",
    "tube.auth": f"{_FACTS} tube.auth tube.wire.message",
    "tube.wire": f"{_FACTS} tube.pb tube.wire google",
    "tube.log": f"{_FACTS} tube.log crc32c",
    "tube.net": f"{_FACTS} tube.net tube.wire prometheus_client twisted zope",
    "tube.net.tls": f"{_FACTS} tube.net OpenSSL twisted zope",
    "tube.observe": "twisted zope",
    "tube.broker": f"{_SERVER} tube.broker tube.log",
    "tube.master": f"{_SERVER} tube.master tube.__version__",
    "tube.master.app": f"{_SERVER} tube.master sqlalchemy",
    "tube.master.cluster_key": "tube.errors cryptography",
    "tube.master.core": f"{_SERVER} tube.master sqlalchemy",
    "tube.master.database": f"{_SERVER} sqlalchemy",
    "tube.master.jobs": f"{_SERVER} tube.master apscheduler sqlalchemy",
    "tube.master.db": "tube.errors tube.values tube.master.db tube.master.values sqlalchemy alembic",
    "tube.client": f"{_FACTS} tube.client tube.pb tube.wire google",
    "tube.client.twisted": f"{_FACTS} tube.client tube.net tube.wire OpenSSL service_identity twisted zope",
    "tube.cli": f"{_FACTS} tube.__version__ tube.cli tube.config click",
    "tube.testing": "tube twisted pytest",
}
"""What a room may import beside the standard library; the longest name that fits a module decides."""

MAY_IMPORT_LATE = {
    "tube.cli": "tube.broker.app tube.client tube.log.inspect tube.master.app tube.master.db.engine"
    " tube.master.db.migrate tube.master.db.schema tube.net tube.observe rich sqlalchemy.Engine"
    " sqlalchemy.exc twisted yaml"
}
"""What it may import inside functions only, so that the command line starts quickly."""

PURE = [
    "tube.errors",
    "tube.limits",
    "tube.values",
    "tube.config",
    "tube.auth",
    "tube.wire",
    "tube.broker.flow",
    "tube.broker.holders",
    "tube.broker.offsets",
    "tube.broker.pull",
    "tube.broker.topics",
    "tube.client.membership",
    "tube.client.options",
    "tube.client.payload",
    "tube.client.publishing",
    "tube.client.values",
    "tube.log.block",
    "tube.log.index",
    "tube.log.retention",
    "tube.log.tail",
    "tube.log.values",
    "tube.master.balance",
    "tube.master.events",
    "tube.master.registry",
    "tube.master.topology",
    "tube.master.values",
]
"""Bytes, values and the time come in, values go out."""

NOT_IN_PURE = [
    "asyncio",
    "logging",
    "os",
    "random",
    "secrets",
    "socket",
    "sqlalchemy",
    "subprocess",
    "threading",
    "time",
    "twisted",
]

BLOCKING = ["tube.log", "tube.broker.offset_file", "tube.master.db"]
"""They wait for the disk or the database, on a thread of their own, and never see the reactor."""

NOT_IN_BLOCKING = ["asyncio", "logging", "twisted"]

TESTED_ELSEWHERE = {
    "tests/broker/gateways/test_tube.py": "tube.broker: admission app appender catalogue gateways.refusals"
    " gateways.sending service upkeep",
    "tests/cli/test_consume.py": "tube.cli: ends",
    "tests/cli/test_doctor.py": "tube.broker: metrics tube.master: metrics tube.net: health",
    "tests/cli/test_group.py": "tube.master: groups translate db.groups tube.net: web",
    "tests/cli/test_group_offsets.py": "tube.master: orders resets",
    "tests/cli/test_servers.py": "tube.cli: serving tube.master: app db.engine db.schema tube.net: clock daemon",
    "tests/client/test_aio.py": "tube.client: consumer core fetching holding link producer pulling"
    " runtime session tube.wire: receipt",
    "tests/client/test_blocking.py": "tube.client: thread",
    "tests/cluster/test_groups.py": "tube: testing tube.broker: orders uplink tube.client: twisted"
    " tube.master: balancing core upkeep",
    "tests/master/test_brokers.py": "tube.master: database db.brokers db.topics tube.net: caller framed workers",
    "tests/master/test_chronicle.py": "tube.master: db.history",
    "tests/master/test_jobs.py": "tube.master: db.statistics",
    "tests/master/test_leader.py": "tube.master: db.keys tube.net: ticker",
    "tests/master/web/test_api.py": "tube.master: web.fields",
}
"""Modules that only make sense with a peer, a database or a reactor, by the test of the whole that holds them."""

UNTESTED = {
    "tube.errors": "classes without logic; every room's tests raise them",
    "tube.limits": "constants",
    "tube.values": "values without logic",
    "tube.client.values": "values without logic",
    "tube.master.values": "values without logic",
    "tube.wire.feature": "constants",
}

BANNED = {
    "manager",
    "handler",
    "processor",
    "helper",
    "util",
    "utils",
    "common",
    "engine",
    "info",
    "data",
    "impl",
    "base",
    "misc",
}

TWISTED_NAMES = {"dataReceived"}
"""Names that Twisted calls."""

DOMAIN_WORDS = ("base_offset", "BaseOffset", "_engine")
"""An offset of the log (design section 3); SQLAlchemy's engine."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its name, generated code left out."""
    found = {}
    for path in sorted((ROOT / "tube").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith("tube.pb"):
            found[name] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """What a file imports: ``module`` or ``module.name``, the line, and whether only inside a function."""
    yield from _imports(tree(path), late=False)


def _imports(node: ast.AST, *, late: bool) -> Iterator[tuple[str, int, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno, late) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from ((f"{child.module}.{a.name}", child.lineno, late) for a in child.names)
        else:
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            type_checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            yield from _imports(child, late=late or inner or type_checking)


def within(name: str, room: str) -> bool:
    """Whether a dotted name is ``room`` or in it."""
    return name == room or name.startswith(room + ".")


def rule(table: dict[str, str], name: str) -> list[str]:
    """The row of the longest room that contains the module."""
    fitting = [room for room in table if within(name, room)]
    return table[max(fitting, key=len)].split() if fitting else []


def definitions(path: Path) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """All classes and functions of a file."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_a_room_imports_only_what_it_may() -> None:
    """No room reaches into a room it may not know."""
    faults = []
    for name, path in modules().items():
        if path.name == "__init__.py" and name != "tube.client":
            faults += [f"{path}: only tube.client re-exports" for _ in imports(path)]
            continue
        for imported, line, late in imports(path):
            allowed = rule(MAY_IMPORT, name) + (rule(MAY_IMPORT_LATE, name) if late else [])
            known = imported.split(".")[0] in sys.stdlib_module_names
            if not known and not any(within(imported, room) for room in allowed):
                faults.append(f"{path}:{line}: {imported}")
    assert not faults


def test_pure_and_blocking_rooms_stay_so() -> None:
    """A pure room has no clock, chance or I/O; a blocking one no reactor."""
    faults = [
        f"{path}:{line}: {imported}"
        for rooms, banned in ((PURE, NOT_IN_PURE), (BLOCKING, NOT_IN_BLOCKING))
        for name, path in modules().items()
        if any(within(name, room) for room in rooms)
        for imported, line, _ in imports(path)
        if any(within(imported, one) for one in banned)
    ]
    assert not faults


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """A module can be understood from what it imports."""
    graph = {
        name: {
            target
            for imported, _, late in imports(path)
            if not late
            for target in (imported, imported.rpartition(".")[0])
            if target in modules() and target != name and modules()[target].name != "__init__.py"
        }
        for name, path in modules().items()
    }
    while free := [name for name, targets in graph.items() if not targets & graph.keys()]:
        for name in free:
            del graph[name]
    assert not graph, f"a circle among {sorted(graph)}"


def test_sizes() -> None:
    """A function fits on a screen, a module can be read in one sitting."""
    faults = []
    for path in modules().values():
        lines = len(path.read_text().splitlines())
        if lines > MODULE_LINES_MAX:
            faults.append(f"{path}: {lines} lines")
        for node in definitions(path):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            if not isinstance(node, ast.ClassDef) and length > FUNCTION_LINES_MAX:
                faults.append(f"{path}:{node.lineno}: {node.name}: {length} lines")
    assert not faults


def test_names_say_something() -> None:
    """No class or function is called after nothing in particular."""
    faults = []
    for path in modules().values():
        for node in definitions(path):
            text = node.name
            for word in DOMAIN_WORDS:
                text = text.replace(word, "")
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text)}
            if words & BANNED and node.name not in TWISTED_NAMES:
                faults.append(f"{path}:{node.lineno}: {node.name}")
    assert not faults


def test_public_names_have_docstrings() -> None:
    """One sentence says what a module, a public class or a public function is."""
    faults = []
    for path in modules().values():
        module = tree(path)
        if path.name != "__init__.py" and not ast.get_docstring(module):
            faults.append(str(path))
        for node in module.body:
            public = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if public and not node.name.startswith("_") and not ast.get_docstring(node):
                faults.append(f"{path}:{node.lineno}: {node.name}")
    assert not faults


def tested_elsewhere() -> dict[str, Path]:
    """The test that holds a module, by the module."""
    found = {}
    for test, text in TESTED_ELSEWHERE.items():
        room = ""
        for word in text.split():
            if word.endswith(":"):
                room = word[:-1]
            else:
                found[f"{room}.{word}"] = ROOT / test
    return found


def test_every_module_has_its_tests() -> None:
    """A module is tested under its own name, or a table above says where or why not."""
    faults = []
    elsewhere = tested_elsewhere()
    for name, path in modules().items():
        *rooms, module = name.split(".")[1:] or [""]
        own = ROOT.joinpath("tests", *rooms, f"test_{module}.py")
        other = elsewhere.get(name, ROOT / "nowhere")
        needs = path.name != "__init__.py" and name not in UNTESTED
        if needs and not own.is_file() and not other.is_file():
            faults.append(f"{name} has no {own.relative_to(ROOT)}")
    assert not faults


def test_the_tables_name_what_exists() -> None:
    """No rule outlives its module."""
    named = {*MAY_IMPORT, *MAY_IMPORT_LATE, *PURE, *BLOCKING, *tested_elsewhere(), *UNTESTED}
    assert not [room for room in named if room not in modules()]


def test_setup_lists_every_package() -> None:
    """``packages`` in setup.cfg is the tree: what is not listed is missing from the wheel."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = setup["options"]["packages"].split()
    packages = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "tube").rglob("__init__.py")
    }
    assert {*packages, "tube.migrations", "tube.migrations.versions"} == set(listed)
    assert listed == sorted(listed)


def test_what_is_to_do_has_an_issue() -> None:
    """Nobody finds a note without a number again."""
    marker = re.compile(r"\b(TODO|FIXME|XXX)\b(?!.*#\d+)")
    for folder in ("tube", "tests", "scripts", "bench", "migrations", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            if path != Path(__file__) and "tube/pb" not in str(path):
                for i, text in enumerate(path.read_text().splitlines(), 1):
                    assert not marker.search(text), f"{path}:{i}: {text.strip()}"
