"""The mutants of a Python module.

Swapped are comparisons, ``and`` and ``or``, arithmetic, numbers and booleans, ``min`` and ``max``; ``not`` is
dropped, a condition becomes True or False, a result None, and a statement ``pass``.
"""

from __future__ import annotations

import ast
from itertools import pairwise

from tests.mutation.mutant import LARGE, Mutant, Splicer

COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
BOUNDS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*"}
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Return every mutant of the module *text*, in the order of its lines."""
    maker = _Maker(path, text)
    maker.visit(ast.parse(text))
    return sorted(maker.splicer.mutants, key=lambda mutant: mutant.first)


class _Maker(ast.NodeVisitor):
    def __init__(self, path: str, text: str) -> None:
        self.splicer = Splicer(path, text)
        self._scope: list[str] = []
        self._conditions: set[ast.expr] = set()

    def visit(self, node: ast.AST) -> None:
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is not None:
            method(node)
        else:
            self.generic_visit(node)

    # Not mutated are imports, checks for the type checker, and f-strings, in which positions are wrong.
    def _skip(self, node: ast.AST) -> None:
        pass

    visit_Import = visit_ImportFrom = visit_Assert = visit_JoinedStr = _skip  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node.name, node.body)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scope.append(node.name)
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        self._scope.pop()
        if not any("overload" in ast.unparse(one) for one in node.decorator_list):
            self._inside(node.name, node.body)

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815

    def _inside(self, name: str, body: list[ast.stmt]) -> None:
        self._scope.append(name)
        for statement in body:
            self.visit(statement)
        self._scope.pop()

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'"):
            return
        self._replace(node.test, "True")
        self._replace(node.test, "False")
        # A test that notices one of these two notices the opposite condition, too.
        self._conditions.add(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._replace(node.test, "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._replace(node.test, f"not ({self._text_of(node.test)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            begin, end = self._end(left), self._begin(right)
            # Parentheses may stand between the operator and its sides.
            between = self.splicer.piece(begin, end)
            sign = _sign(operator)
            opposite = type(operator) not in BOUNDS and node in self._conditions
            if between.count(sign) == 1 and not opposite:
                self._swap(begin, between, sign, COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        sign, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            begin = self._end(left)
            self._swap(begin, self.splicer.piece(begin, self._begin(right)), sign, other)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS and not _is_text(node.left) and not _is_text(node.right):
            begin = self._end(node.left)
            between = self.splicer.piece(begin, self._begin(node.right))
            self._swap(begin, between, SIGNS[type(node.op)], OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub) and node not in self._conditions:
            self._replace(node, f"({self._text_of(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace(node, str(node.value + 1) if node.value < LARGE else "0")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            self._replace(node.func, CALLS[node.func.id])
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._replace(node, "pass")
            return
        if not isinstance(node.value, ast.Constant) or isinstance(node.value.value, str):
            self._replace(node.value, "None")
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._replace(node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(name, ast.Name) and name.id == "__slots__" for name in node.targets):
            return
        if self._scope and not any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets):
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in OPERATORS:
            begin = self._end(node.target)
            between = self.splicer.piece(begin, self._begin(node.value))
            self._swap(begin, between, SIGNS[type(node.op)], OPERATORS[type(node.op)])
        self._replace(node, "pass")
        self.generic_visit(node)

    def _drop(self, node: ast.stmt) -> None:
        self._replace(node, "pass")
        self.generic_visit(node)

    visit_Raise = visit_Delete = visit_Break = visit_Continue = _drop  # noqa: N815

    def _swap(self, begin: int, between: str, sign: str, other: str) -> None:
        at = begin + len(between[: between.index(sign)].encode())
        self._splice(at, at + len(sign), other)

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        if "\n" not in new:
            # The lines below keep their numbers.
            breaks = "\n" * ((node.end_lineno or node.lineno) - node.lineno)
            new = f"({new}{breaks})" if breaks and isinstance(node, ast.expr) else new + breaks
        self._splice(self._begin(node), self._end(node), new)

    def _splice(self, begin: int, end: int, new: str) -> None:
        self.splicer.replace(begin, end, new, ".".join(self._scope))

    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self.splicer.offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.splicer.offset(node.end_lineno, node.end_col_offset)

    def _text_of(self, node: ast.expr) -> str:
        return self.splicer.piece(self._begin(node), self._end(node))


def _sign(operator: ast.cmpop) -> str:
    signs = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
             ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}  # fmt: skip
    return signs[type(operator)]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
