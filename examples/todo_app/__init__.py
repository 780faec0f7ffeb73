"""todo_app: a small web application on zapdb. `python -m examples.todo_app` starts it."""
