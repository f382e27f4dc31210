"""In which files an unquoted right side is an expression, and no value."""

_CODE = frozenset(
    b"py pyi pyx js jsx mjs cjs ts tsx vue svelte java kt kts scala sc groovy gradle go rs c h cc cpp cxx hh hpp hxx ino m mm cs vb fs php phtml rb erb rake "
    b"swift dart lua pl pm t hs ex exs erl hrl clj cljs ml mli r jl sql tf hcl proto thrift graphql sol zig nim d pas asm s v vhd json ipynb css scss less "
    b"ps1 psm1 coffee elm idl avsc cmake bzl bazel".split()
) - frozenset({b"t"})


def is_code(path: bytes) -> bool:
    """Tell by a file's name whether it is written in a language that has its texts in quotes."""
    return path.rpartition(b"/")[2].rpartition(b".")[2].lower() in _CODE
