"""The control plane: what operators, pipelines and other hosts ask of a database.

A method is a function of a `Target`. Its arguments are plain, and its answer is a frozen dataclass,
or an iterator of them: `--json` writes it, a command prints it, and the service sends it as the
message of the same fields (`zapdb.service.methods` lists the methods that it has). So a command
gives the same answer of a database that it opens itself as of one that a service serves.
"""

from zapdb.control.target import Control, Json, LocalControl, Target, method_name, pace_of, paced

__all__ = ["Control", "Json", "LocalControl", "Target", "method_name", "pace_of", "paced"]
