"""Generated source: names that are bound, and tracebacks that show the text."""

import traceback

from zapdb.values.generated_source import Namespace, compile_function


def test_equal_hints_get_numbered_names_and_one_object_one_name() -> None:
    names = Namespace()
    first, second = [1], [1]
    assert names.bind(first, "path") == "path"
    assert names.bind(second, "path") == "path_2"
    assert names.bind(first, "other") == "path"
    assert names.globals["path"] is first
    assert names.globals["path_2"] is second


def test_a_traceback_through_generated_code_shows_its_text() -> None:
    lines = ["def fail(x):", "    return x / 0  # here"]
    function, text = compile_function("fail", lines, Namespace(), "test fail")
    assert text == "def fail(x):\n    return x / 0  # here\n"
    try:
        function(1)
    except ZeroDivisionError as error:
        shown = "".join(traceback.format_exception(error))
    assert "<zapdb test fail>" in shown
    assert "return x / 0  # here" in shown
