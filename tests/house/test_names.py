"""Names of the package: words that say nothing become fewer, and functions are verbs."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from support.package_modules import nodes, trees

#: Whole names that say nothing of a value, and how many are bound yet. Lower a number with its names.
CEILINGS = {"found": 5, "made": 0, "told": 0, "said": 0, "held": 0, "one": 0, "way": 1, "place": 1}
#: A method of tf_keras that a class overrides; the name is theirs.
OVERRIDDEN = {"_fused_can_be_used"}
#: Participles that do not end in -ed; `read`, `set` and `put` are verbs too.
IRREGULAR = frozenset(
    "begun broken brought built caught chosen cut done drawn driven fed felt found frozen given grown "
    "held hidden kept known laid led left lent lost made meant met paid run said seen sent shown shut sought "
    "spent split spread stood taken taught thought thrown told torn understood won worn woven written".split()
) - {"cut", "run", "shut", "split", "spread"}
#: Words in -ed that are no participles.
VERBS = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"})


def bound(tree: ast.AST) -> Iterator[str]:
    """The names that a module binds: functions, classes, arguments, variables, attributes, aliases."""
    for node in nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def functions(tree: ast.AST) -> Iterator[str]:
    """The names of functions and methods, without properties, which are values."""
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
            "property" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            yield node.name


def is_participle(name: str) -> bool:
    """Whether a function's name is, or begins with, a participle; `has_`, `is_` and so on are questions."""
    first = name.strip("_").partition("_")[0]
    return first in IRREGULAR or (first.endswith("ed") and first not in VERBS)


def test_names_that_say_nothing_become_fewer() -> None:
    words = Counter(
        name for tree in trees().values() for name in map(str.lower, bound(tree)) if name in CEILINGS
    )
    more = {word: words[word] for word, ceiling in CEILINGS.items() if words[word] > ceiling}
    assert not more, f"choose other names: at most {CEILINGS}"


def test_no_function_is_named_by_a_participle() -> None:
    named = [
        (path, name) for path, tree in trees().items() for name in functions(tree) if is_participle(name)
    ]
    assert {name for _, name in named} == OVERRIDDEN, f"name functions by verbs: {named}"


def test_each_kind_of_name_is_counted() -> None:
    tree = ast.parse(
        "import a as one\n"
        "def found(told, *made, held=0, **way): pass\n"
        "x.place = said = (one := 1)\n"
        "for made in held: pass\n"
        "try: pass\n"
        "except E as told: found.said(way=1)\n"
    )
    assert sorted(name for name in bound(tree) if name != "x") == sorted(
        "one found told made held way place said one made told".split()
    )


def test_which_functions_are_participles() -> None:
    assert all(map(is_participle, ("kept", "_made", "written_graph", "decoded", "_placed_files")))
    assert not any(map(is_participle, ("read", "seed", "feed_names", "is_made", "write", "run", "_need")))
