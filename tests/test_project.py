"""What belongs to the project around the package."""

import re
from pathlib import Path

import pytest

import dinozaur_no

ROOT = Path(__file__).parent.parent
TOP_LEVEL = {
    *("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile"),
    *("pyproject.toml", "constraints.txt", ".gitignore", ".pre-commit-config.yaml"),
    *("dinozaur_no", "benchmarks", "docs", "examples", "tests", ".ci", ".github"),
}
IGNORED = {
    *(".git", ".venv", ".coverage", "build", "dist", "checkpoints", "__pycache__"),
    *("dinozaur_no.egg-info", ".hypothesis", ".mypy_cache", ".pytest_cache"),
    *(".ruff_cache", ".DS_Store", ".idea", ".vscode"),
}


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("pyproject.toml", r'^version = "(.+)"$'),
        ("CITATION.cff", r"^version: (.+)$"),
        ("CHANGELOG.md", r"^## \[(\d.*?)\]"),
    ],
)
def test_versions_agree(file, pattern):
    text = (ROOT / file).read_text(encoding="utf-8")
    match = re.search(pattern, text, flags=re.MULTILINE)
    assert match, f"{file} names no version"
    assert match[1] == dinozaur_no.__version__


def test_release_dates_agree():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## \[\d.*?\] - (\S+)$", changelog, flags=re.MULTILINE)
    cited = re.search(r"^date-released: (\S+)$", citation, flags=re.MULTILINE)
    assert newest[1] == cited[1]


def test_top_level_holds_nothing_unexpected():
    found = {path.name for path in ROOT.iterdir()}
    assert found - IGNORED <= TOP_LEVEL


def test_package_is_typed():
    assert (Path(dinozaur_no.__file__).parent / "py.typed").is_file()


def test_readme_names_only_files_that_exist():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", readme)
    local = [link for link in links if "://" not in link]
    assert local
    assert [link for link in local if not (ROOT / link).exists()] == []
