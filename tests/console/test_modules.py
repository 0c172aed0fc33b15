"""console.modules: the static imports of JavaScript modules."""

import pytest

from fairlead.console.build import find_static_graph, list_imports


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ('import { a } from "./a.js";', ["core/a.js"]),
        ("import { a } from '../a.js'", ["a.js"]),
        ('import {\n  a,\n  b as c,\n} from "./deep/a.js";', ["core/deep/a.js"]),
        ('import "./a.js";', ["core/a.js"]),
        ('import * as $all from "./a.js";', ["core/a.js"]),
        ('import a, { b } from "./a.js";', ["core/a.js"]),
        ('export { a } from "./a.js";\nexport * from "./b.js";', ["core/a.js", "core/b.js"]),
        ('import sheet from "./a.css" with { type: "css" };', ["core/a.css"]),
        ('const page = await import("./a.js");', []),
        ('import("./a.js");', []),
        ('export const path = "./a.js";', []),
        ('export default "./a.js";', []),
        ('// import { a } from "./a.js";', []),
        ('import { a } from "library";', []),
    ],
)
def test_only_static_imports_of_own_files_are_found(source: str, imported: list[str]) -> None:
    assert list(list_imports("core/main.js", source)) == imported


def test_the_graph_has_every_module_once_even_in_a_cycle() -> None:
    sources = {
        "main.js": b'import "./core/a.js";\nimport "./core/b.js";\nimport("./later.js");',
        "core/a.js": b'import "./b.js";',
        "core/b.js": b'import "./a.js";\nimport "../main.js";',
        "later.js": b"",
    }
    assert find_static_graph("main.js", sources) == ("main.js", "core/a.js", "core/b.js")


def test_an_import_of_a_file_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"main\.js imports core/a\.js, which does not exist"):
        find_static_graph("main.js", {"main.js": b'import "./core/a.js";'})
