"""What the modules of a package import: also in functions, for types alone, and by ``importlib``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: In the place of a module that only a run could tell.
ANY = "?"


@dataclass(frozen=True, slots=True)
class Import:
    importer: str
    imported: str
    #: Only type checkers do it.
    for_types: bool

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"


def read(root: Path, *packages: str) -> dict[str, list[Import]]:
    """For each module of *packages*, which stand in *root*, what it imports."""
    files = [
        file
        for package in packages
        for file in sorted((root / package).rglob("*.py")) or [root / f"{package}.py"]
    ]
    modules = {_name(file.relative_to(root)): file for file in files}
    return {name: list(_imports(name, file.read_text("utf-8"), modules)) for name, file in modules.items()}


def _name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(name: str, source: str, modules: Mapping[str, Path]) -> Iterator[Import]:
    for node, for_types in _walk(ast.parse(source), False):
        match node:
            case ast.Import(names):
                for alias in names:
                    yield Import(name, alias.name, for_types)
            case ast.ImportFrom(module=module, names=names, level=level):
                # A relative one keeps its dots: no layer has such names.
                module = "." * level + (module or "")
                for alias in names:
                    inside = f"{module}.{alias.name}"
                    yield Import(name, inside if inside in modules else module, for_types)
            case ast.Call(func=ast.Name(called) | ast.Attribute(attr=called), args=[first, *_]):
                if called in {"import_module", "__import__"}:
                    constant = isinstance(first, ast.Constant) and isinstance(first.value, str)
                    yield Import(name, str(first.value) if constant else ANY, for_types)  # type: ignore[attr-defined]


def _walk(node: ast.AST, for_types: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        types = for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
        yield child, types
        yield from _walk(child, types)


def circles(arrows: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The modules that come back to themselves: Tarjan's strongly connected components of more than one."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in arrows:
        if node not in index:
            visit(node)
    return found
