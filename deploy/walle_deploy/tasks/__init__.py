"""Task management on git: scenarios are repositories, tasks branches, versions annotated tags."""
