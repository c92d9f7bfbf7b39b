"""Tasks on git: scenarios are repositories, tasks are branches, versions are annotated tags."""
