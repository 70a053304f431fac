"""The mutants of a Lua script, by its text: comparisons, logic, numbers and commands of Redis are swapped,
conditions become true or false, and statements of one line are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.mutation.mutant import LARGE, Mutant, Splicer

#: What one token becomes. In this order, because the first that fits is taken.
SWAPS = {
    "<=": ["<"], ">=": [">"], "==": ["~="], "~=": ["=="], "<": ["<="], ">": [">="],
    "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "and": ["or"], "or": ["and"], "not": [""],
    "true": ["false"], "false": ["true"],
    "math.min": ["math.max"], "math.max": ["math.min"], "math.ceil": ["math.floor"],
    "math.floor": ["math.ceil"], "redis.pcall": ["redis.call"],
}  # fmt: skip
#: Another command, or another option, that takes the same arguments.
COMMANDS = {
    "GET": "STRLEN", "DEL": "EXISTS", "LPOP": "RPOP", "RPUSH": "LPUSH", "LPUSH": "RPUSH", "LPOS": "LREM",
    "PEXPIRE": "EXPIRE", "PEXPIREAT": "EXPIREAT", "PX": "EX", "PXAT": "EXAT", "ZRANGEBYSCORE": "ZRANGEBYLEX",
    "ZADD": "ZINCRBY", "PTTL": "TTL", "PUBLISH": "SPUBLISH", "KEEPTTL": "NX", "-inf": "(0",
    "LRANGE": "LTRIM", "INCR": "DECR", "INCRBY": "DECRBY", "PERSIST": "EXISTS", "EXISTS": "TYPE",
}  # fmt: skip
_TOKEN = re.compile(
    r"--[^\n]*|'(?:\\.|[^'\\\n])*'|redis\.p?call|math\.\w+|[A-Za-z_][\w.]*|\d+(?:\.\d+)?|[<>=~]=|\.\.|[-+*/%<>#=(){}\[\],:;]"
)
_STATEMENT = re.compile(
    r"(local |redis\.|if |return\b|for |while |break\b|error\(|table\.|[\w.\[\]]+( =|, \w+)|[a-z_]+\()"
)
_OPENS = {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}
#: A line that ends or begins so goes on.
_GOES_ON = re.compile(r"(\b(and|or|not)|\.\.|[-+*/=,(<>])$")
_CONTINUES = re.compile(r"(and|or)\b|\.\.|[)}\]]")


def tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of *text* without its comments."""
    for token in _TOKEN.finditer(text):
        if not token[0].startswith("--"):
            yield token


def statements(text: str) -> list[int]:
    """Return the lines (1-based) at which a statement begins, so that another one may stand before it."""
    found, depth, before = [], 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        of_line = [token[0] for token in tokens(line)]
        code = line.strip()
        if not of_line:
            continue
        fresh = depth == 0 and not _GOES_ON.search(before) and not _CONTINUES.match(code)
        if fresh and _STATEMENT.match(code):
            found.append(number)
        depth += sum(_OPENS.get(one, 0) for one in of_line)
        before = line.partition(" --")[0].rstrip()
    return found


def begin_of_statement(text: str, number: int) -> int:
    """Return the line at which the statement of line *number* began: for an ``elseif`` that of its ``if``."""
    lines = text.splitlines()
    indent = _indent(lines[number - 1])
    above = [begin for begin in statements(text) if begin <= number and _indent(lines[begin - 1]) <= indent]
    return max(above, default=number)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Return every mutant of the script *text*, in the order of its lines."""
    splicer = Splicer(path, text)
    functions = _functions(text)
    lines = text.splitlines()
    for token in tokens(text):
        begin = len(text[: token.start()].encode())
        end = begin + len(token[0].encode())
        number = splicer.line_of(begin)
        for new in _changes(text, token):
            splicer.replace(begin, end, new, functions[number - 1])
    for number in statements(text):
        line = lines[number - 1]
        code = line.strip()
        begin = splicer.offset(number, len(line) - len(line.lstrip()))
        end = splicer.offset(number, len(line.encode()))
        if _is_whole(code):
            splicer.replace(begin, end, "", functions[number - 1])
    for match in re.finditer(r"^( *)((?:else)?if|while) (.+) (then|do)$", text, re.MULTILINE):
        begin = len(text[: match.start(3)].encode())
        end = begin + len(match[3].encode())
        number = splicer.line_of(begin)
        for new in ("true", "false") if match[2] != "while" else ("false",):
            splicer.replace(begin, end, new, functions[number - 1])
    return sorted(splicer.mutants, key=lambda mutant: mutant.first)


def _changes(text: str, token: re.Match[str]) -> list[str]:
    word = token[0]
    if word.startswith("'"):
        bare = word[1:-1]
        if bare in COMMANDS:
            return [f"'{COMMANDS[bare]}'"]
        return {"+": ["'-'"], "-": ["'+'"], "0": ["'1'"], "1": ["'0'"]}.get(bare, [])
    if word[0].isdigit():
        # Another index names another key or argument: any test would notice.
        if text[token.start() - 1] == "[":
            return []
        return [str(int(word) + 1) if int(word) < LARGE else "0"]
    if word in ("==", "~=", "not") and _is_whole_condition(text, token):
        # A test that notices that the condition is true, or false, notices the opposite one, too.
        return []
    if word == "-" and re.search(r"[(,=]\s*$", text[: token.start()]):
        return [""]
    return SWAPS.get(word, [])


def _is_whole_condition(text: str, token: re.Match[str]) -> bool:
    begin = text.rfind("\n", 0, token.start()) + 1
    line = text[begin : text.find("\n", token.start())].strip()
    return line.startswith(("if ", "elseif ")) and not re.search(r"\b(and|or)\b", line)


def _is_whole(code: str) -> bool:
    """Return whether the line *code* is a whole statement, and can go without another that needs it."""
    balance = sum(_OPENS.get(token[0], 0) for token in tokens(code))
    if balance or _GOES_ON.search(code) or code.startswith(("local ", "if ", "for ", "while ")):
        return False
    return not re.search(r"\b(function|then|do|end)\b", code)


def _functions(text: str) -> list[str]:
    """Return for each line the function around it; empty outside of functions."""
    names, name = [], ""
    for line in text.splitlines():
        if match := re.match(r"(?:local )?function (\w+)", line):
            name = match[1]
        names.append(name)
        if line.startswith("end"):
            name = ""
    return names


def with_marks(path: str, text: str) -> str:
    """Return *text* with a line in the log of Redis for each statement that runs: see recording.py."""
    lines = text.splitlines(keepends=True)
    for number in statements(text):
        line = lines[number - 1]
        indent = len(line) - len(line.lstrip())
        mark = f"redis.log(redis.LOG_WARNING, '@{path}:{number}') "
        lines[number - 1] = line[:indent] + mark + line[indent:]
    return "".join(lines)
