"""An import error in the UI for each file of the project that is no pipeline's; the DAGs of the others are there all the same."""

from sessionlake_airflow.project import broken

if broken():
    raise ValueError("\n".join(broken()))
