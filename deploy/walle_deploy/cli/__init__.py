"""Sub-commands of ``walle`` for the deployment platform."""
