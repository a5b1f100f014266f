"""Documents and the Makefile mention only existing files, commands and targets."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from cli.main import COMMANDS
from tests.tidy import sources
from wire.protocol.messages.private import PRIVATE_NAMES

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
QUOTED_PATH = re.compile(r"`([a-z_.]+/[\w./-]+\.(?:py|md|proto|txt|yaml|toml|sh))`")
QUOTED_MODULE = re.compile(r"`(\w+\.py)`")
MODEL_CHANGES_MIN = 20
PAGES_MIN = 50
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
DAEMONS = ("broker", "controller", "mirror", "dr", "spark_jobs", "wire")


def _documents() -> list[str]:
    return [name for name in sources.files() if name.endswith(".md")]


def _exists(document: str, target: str) -> bool:
    folder = (sources.ROOT / document).parent
    return (folder / target).exists() or (sources.ROOT / target.lstrip("/")).exists()


def test_links_between_documents_resolve() -> None:
    offenders = [
        f"{name}: {target}"
        for name in _documents()
        for target in LINK.findall(sources.text(name))
        if "://" not in target and not target.startswith("mailto:") and not _exists(name, target)
    ]
    sources.assert_none(offenders, "the link leads nowhere")


def test_files_that_documents_name_are_there() -> None:
    """Modules and paths: from the root, from the document's folder, or the end of a path."""
    offenders = [
        f"{name}: {path}"
        for name in _documents()
        for path in (*QUOTED_PATH.findall(sources.text(name)), *QUOTED_MODULE.findall(sources.text(name)))
        if not _exists(name, path) and not any(file.endswith(f"/{path}") for file in sources.files())
    ]
    sources.assert_none(offenders, "the file has moved or is not there yet")


def _page_of(module: Path) -> str:
    """The page of the nearest folder that has one."""
    pages = (str(folder / "README.md") for folder in module.parents)
    return next(page for page in pages if page in sources.files())


def test_the_table_of_a_room_names_each_of_its_modules() -> None:
    """Those of its folders without a page, too. Modules that are commands apart: `antipode --help`
    lists them.
    """
    commands = {module.replace(".", "/") + ".py" for module, _ in COMMANDS.values()}
    pages = [name for name in _documents() if re.search(r"^\| file \|", sources.text(name), re.MULTILINE)]
    offenders = [
        f"{page}: {path.relative_to(Path(page).parent)}"
        for page in pages
        if page.startswith(sources.PACKAGES)
        for module in sources.modules(page.rpartition("/")[0])
        if _page_of(path := Path(module)) == page and module not in commands
        if not path.name.startswith("__") and not re.search(rf"\b{path.stem}(\.py)?`", sources.text(page))
    ]
    assert len(pages) > PAGES_MIN
    sources.assert_none(offenders, "give the module a row")


def test_the_table_of_changes_names_what_is_in_the_tree() -> None:
    """A path that begins with a folder counts from the root, a bare file name from the folder of
    the path before it; `<subject>` is any name.
    """
    table = sources.text("ARCHITECTURE.md").partition("## Where does a change belong")[2].partition("\n\nModels")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    offenders = []
    for row in rows:
        folder, is_located = sources.ROOT, False
        for path in re.findall(r"`([\w.*<>/]+(?:/|\.\w+))`", row.split("|")[2]):
            pattern = re.sub(r"<\w+>", "*", path).rstrip("/")
            base = sources.ROOT if "/" in path else folder
            if not any(base.glob(pattern)):
                offenders.append(f"{row}: {path}")
            folder, is_located = (base / pattern).parent, True
        if not is_located:
            offenders.append(f"{row}: no path")
    assert len(rows) >= MODEL_CHANGES_MIN
    sources.assert_none(offenders, "each row names the files or folders where the change is made")


def test_both_tables_of_private_messages_name_each_of_them() -> None:
    known = {str(key): "".join(part.title() for part in name.split("_")) for key, name in PRIVATE_NAMES.items()}
    for page in ("ARCHITECTURE.md", "wire/protocol/messages/private.py"):
        rows = dict(re.findall(r"^\| (20\d{3}) \| (\w+) \|", sources.text(page), re.MULTILINE))
        assert rows == known, page


def test_every_package_has_a_page() -> None:
    missing = [f"{package}/README.md" for package in DAEMONS if f"{package}/README.md" not in sources.files()]
    sources.assert_none(missing, "a package has a README: what it is, file map, what is not obvious, what is not done")


def test_decisions_are_numbered_once_and_titled() -> None:
    offenders = []
    seen: set[str] = set()
    for path in (name for name in sources.files() if name.startswith("docs/decisions/")):
        number = path.rpartition("/")[2][:4]
        is_titled = sources.text(path).startswith(f"# {int(number)}. ") if number.isdecimal() else False
        if number in seen or not (is_titled or path.endswith("template.md")):
            offenders.append(path)
        seen.add(number)
    sources.assert_none(offenders, "a record is docs/decisions/NNNN-words.md and begins `# N. Title`")


def test_make_alone_lists_every_target() -> None:
    listed = subprocess.run(
        ["make", "--no-print-directory"], cwd=sources.ROOT, capture_output=True, text=True, check=True
    )
    targets = TARGET.findall(sources.text("Makefile"))
    missing = [target for target in targets if not re.search(rf"^  {target} +\S", listed.stdout, re.MULTILINE)]
    sources.assert_none(missing, "give the target a help text after two hashes")
    phony = set(re.findall(r"^\.PHONY: (\S+)$", sources.text("Makefile"), re.MULTILINE))
    sources.assert_none(sorted(set(targets) - phony), "no target is a file: declare it .PHONY")


def test_files_that_make_tests_twice_are_there() -> None:
    # Not with --dry-run: make runs lines that call make, and with them the tests on the same line.
    shown = subprocess.run(
        ["make", "--no-print-directory", "--eval", "show-tests: ; @echo '$(BOTH_WAYS)'", "show-tests"],
        cwd=sources.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [part for part in shown.stdout.split() if part.startswith("tests/")]
    assert paths, shown.stdout
    sources.assert_none([path for path in paths if not (sources.ROOT / path).exists()], "the Makefile names no test")


def test_ci_runs_what_a_person_runs() -> None:
    assert "make test" in sources.text(".ci/run")
    assert "make check" in sources.text(".pre-commit-config.yaml")
